"""What `bareboat init` finds in a project, and the job file that follows from it. The project's code is read,
and never run.

`world` decides how its ranks start, and `draft` writes the job file; `recipes` write Dockerfiles.
"""
