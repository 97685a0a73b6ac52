"""The command line: one file per verb. `main` alone catches errors."""
