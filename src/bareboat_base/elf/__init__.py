"""ELF files, and where the dynamic loader finds the libraries that they need."""
