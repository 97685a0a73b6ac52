"""Images in files: OCI layouts and archives, archives of `docker save`."""
