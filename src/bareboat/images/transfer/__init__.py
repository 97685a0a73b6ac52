"""Images on their way: from wherever a reference leads into the store, and from the store to a registry."""
