"""Complete synthetic studies whose true ratio is known from the process that makes them.

`process` draws the seconds of every step, `records` writes them as the records of a study, `scenarios` lists
what is simulated, and `judging` is the only module that knows the analysis. The first three are frozen: an
analysis is changed to suit the studies, never the other way round.
"""
