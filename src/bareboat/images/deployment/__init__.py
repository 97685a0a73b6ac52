"""What a job is given of an image in the store: trees, files for nodes, users, a host's MPI."""
