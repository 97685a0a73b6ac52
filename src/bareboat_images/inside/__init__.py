"""The content of an image, and what a command finds in it, read from its files. No program is executed."""
