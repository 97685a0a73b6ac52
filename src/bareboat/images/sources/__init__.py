"""Where images come from: references, registries, layouts, archives, SIF, squashfs, folders."""
