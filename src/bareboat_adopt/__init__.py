"""Old jobs, read as skeletons of job files: directives and the one command that starts the program are
understood; every other line stays as a comment with its number.

`bash` splits a script into statements, `values` expands their words, `directives` reads requests, `steps`
decides what each command is, `layers` reads what surrounds the program, `job` has the keys that follow, and
`adopt` writes them. Nothing of an old job is run.
"""
