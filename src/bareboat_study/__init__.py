"""Studies: the design of a comparison, the runs, the statistics and the report."""
