"""Images as one file or directory: SIF, squashfs, root file systems, archives for Docker."""
