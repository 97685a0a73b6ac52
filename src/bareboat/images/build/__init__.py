"""Building images from Dockerfiles, without root, daemon and subordinate ids.

Dockerfile -> stages (`recipe`) -> steps -> layers, each the difference that one instruction makes.
A RUN starts in bubblewrap with the layers stacked by overlayfs: what it changes is the upper directory, and
that is the layer. COPY and ADD write a layer's tree without starting anything. Steps are kept by what they
depend on, so that a build goes on where another one ended.
"""
