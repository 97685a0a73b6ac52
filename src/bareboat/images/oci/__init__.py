"""OCI images as documents and tars: manifests, layouts, archives, bundles; the tar reader and tar writer."""
