"""Numbers with their spread: each with a 95 % interval, or the reason why it has none. See docs/statistics.md.

estimate.py    the number and its interval; exact percentiles
dependence.py  the standard error of a mean whose values are correlated in time and by user
tails.py       how many independent requests a tail is worth
intervals.py   percentiles, shares and rates of one window
repeats.py     ratios of engines over repeated runs, and who won
differences.py tests, effect sizes and spread of two groups of runs
steadiness.py  initial transient, trend, users in lock step

How often the intervals hold is simulated:  make simulations
"""
