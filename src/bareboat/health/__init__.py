"""Whether nodes give a job what it requested, and how fast they are: the rules, and a program for nodes."""
