"""Rules that compare an image with a site: GPUs, MPI, networks. The others are in bareboat_images.lint."""
