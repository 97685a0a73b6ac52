"""What `bareboat init` finds in a project, and the job file that follows from it. The project's code is read,
and never run.

`code` reads Python source, `scripts` finds it, `world` decides how its ranks start,
`surroundings` finds environments, data and links, and `text` writes the job file.
"""
