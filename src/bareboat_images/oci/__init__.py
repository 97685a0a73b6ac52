"""OCI documents: manifests, references, and the interface of what provides them."""
