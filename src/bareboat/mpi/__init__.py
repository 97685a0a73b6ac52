"""MPI: which launcher starts which library (`rules`), the way to start a job's ranks (`ladder`), and the
check that they became one world (`check_program`, `checks`)."""
