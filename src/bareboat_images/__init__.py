"""Container images: capture of the user's environment, layers, OCI metadata, export."""
