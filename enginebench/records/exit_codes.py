"""The exit codes of all commands."""

GOOD = 0  # measured, and no objective was missed
MISSED = 1  # an objective was missed, or a regression was found
INVALID = 2  # a usage error, or a run that failed or is invalid
NOT_ENOUGH = 3  # too little was measured for an answer
