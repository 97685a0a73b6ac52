"""Run again: the lock of a run or a study, its replay, and what differs between two of them.

`document` has the lock's types, `reading` reads one from a stranger, `making` makes one of a run, `retrieval`
finds what can be had again, `replay` runs it, `difference` and `comparison` (pure) judge the result.
"""
