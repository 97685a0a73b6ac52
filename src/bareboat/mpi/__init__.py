"""MPI: which launcher starts which library (`rules`), how to start a job's ranks (`ladder`), and the check
that they became one world (`check_program`, `checks`)."""
