"""Images: capture of the environment as it stands, layers, OCI metadata, export."""
