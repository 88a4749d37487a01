"""Problems that make the numbers of a run doubtful.

checks.py          all of them together, and those of requests, prompts and answers
load_generator.py  was the client late, or its machine busy?
steady.py          was the load what it was meant to be, and the window steady under it?
recovery.py        how a server came back after it had failed
"""
