"""What is in an image, and what a command finds there: read from its files; nothing of it is run."""
