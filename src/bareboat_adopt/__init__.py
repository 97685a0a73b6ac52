"""Old jobs, read as skeletons of job files; every line that is not understood stays as a comment."""
