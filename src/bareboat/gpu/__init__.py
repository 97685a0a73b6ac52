"""GPU drivers: the parts of the host's driver that a container needs, and whether the image supports them.

`find` probes a machine (with `cdi` the only module here that reads files, besides `links`, which makes one
small directory in the store); `versions` and `inject` are pure.
"""
