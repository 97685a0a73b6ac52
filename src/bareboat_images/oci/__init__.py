"""OCI images as manifests, layouts, archives and bundles; the tar reader and the tar writer."""
