"""Why there is no plan."""


class CannotPlan(ValueError):
    """Records from which nothing can be predicted. One sentence, with the way out."""
