"""Transfer of images: from any reference into the store, and from the store to a registry."""
