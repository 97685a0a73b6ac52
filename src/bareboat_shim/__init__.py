"""Shims: the command lines of other tools, with Bareboat's containers.

Scripts that call `apptainer` or `singularity` run unedited where neither is installed. A package of its own:
it uses the launcher's Python API (`bareboat.api`) and its command line, as any
program may.
"""
