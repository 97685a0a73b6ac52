"""Complete synthetic studies whose true ratio is known from the process that makes them.

`process` draws the seconds of every step, `records` writes them as the records of a study, `scenarios` lists
what is simulated, and `judging` is the only module that knows the analysis. The first three are frozen: an
analysis is changed to suit the studies, never the other way round. One argument was added later: `redraws`,
for a design that draws the effect of the copy anew for each run. Without it, every study is as before.

`before.json`: the analysis when they were frozen. `after.json`: now, with that design, which is the default
of `prove`. `kept.json`: now, with copies that stay as they are. `after.md` shows all three.
"""
