"""One file that transfers an image, and Bareboat itself, to a machine without a network."""
