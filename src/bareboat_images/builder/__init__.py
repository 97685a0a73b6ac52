"""Build images from Dockerfiles, without root, daemon and subordinate IDs.

Dockerfile -> stages (`recipe`) -> steps -> layers, one for the changes of each instruction.
A RUN starts in bubblewrap on an overlayfs of the layers; its upper directory with the changes becomes the
layer. COPY and ADD write a layer's tree without starting a process. Results of steps are cached by what
they depend on, so a build continues where another one ended.
"""
