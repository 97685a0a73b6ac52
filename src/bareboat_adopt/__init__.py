"""Old jobs, read: batch scripts, lines that start ranks or containers, Dockerfiles and definition files; and
the job files that do the same.

`bash` parses a script, `values` expands its words, `slurm` and `schedulers` read requests, `steps` decides
what each command is, `layers` and `containers` read what surrounds the program, `topology` counts ranks,
`job` has the keys that follow, and `text` writes them. Nothing of an old job is run, but by `trial`, on
request, whose results `comparison` compares.
"""
