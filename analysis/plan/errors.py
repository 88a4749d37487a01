"""Why there is no plan."""

from settings.schema import UserMistake


class CannotPlan(UserMistake):
    """Records from which nothing can be predicted. One sentence, with the way out."""
