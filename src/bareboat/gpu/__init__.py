"""GPU drivers: the parts of the host's driver that a container needs, and whether the image supports them.

`find` probes a machine; `versions` and `inject` are pure.
"""
