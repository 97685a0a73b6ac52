"""The recipe of an image: what `bareboat image init` writes. Pure, except for `reading`.

`choices` is what the user asks for, and `lists` reads the project's package lists. `target` and `cuda` decide
what follows from a site's facts, with reasons; `wanted` joins all three. `composition`, `installing` and
`horovod` make the steps, and `dockerfile` and `definition` write them. `catalogue` has the
releases that recipes install.
"""
