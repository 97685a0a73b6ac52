"""GPU drivers: what of the host's driver a container must see, and whether the image can bear it.

`find` looks at a machine (the only module here that reads files, with `cdi` for it, and
`links`, which makes one small directory in the store); `versions` and `inject` are pure.
"""
