"""Numbers with their spread: each with a 95 % interval, or the reason why it has none. See docs/statistics.md.

student_t.py       quantiles and p values of Student's t
effective_size.py  how many independent requests correlated ones are worth, along time and by user
intervals.py       percentiles, shares and rates of one window
repeats.py         means, tests and ratios of repeated runs
samples.py         two samples of runs of one metric: their ratio or difference, and p
steadiness.py      initial transient, trend, users in lock step

The coverage of the intervals is simulated:  make simulations
"""
