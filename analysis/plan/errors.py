"""Why there is no plan."""


class CannotPlan(Exception):
    """Records from which nothing can be predicted. One sentence, with the way out."""
