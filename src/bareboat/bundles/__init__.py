"""One file that transfers an image to a machine without a network."""
