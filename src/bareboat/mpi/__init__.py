"""MPI: which launcher starts which library (`rules`), the way to start a job's ranks (`ladder`), and the
proof that they became one world (`proof`)."""
