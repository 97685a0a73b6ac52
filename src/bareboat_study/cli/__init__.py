"""The verbs of studies; each has `EXAMPLE`, `add(parser)` for its flags, and `run(context) -> int`."""
