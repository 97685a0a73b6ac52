"""Prepare a stored image for a job: trees, files for nodes, users, a host's MPI."""
