"""Practical significance. On its own, so that commands can name their defaults without importing the statistics."""

MARGIN = 1.05  # a smaller ratio is no reason to change engines
