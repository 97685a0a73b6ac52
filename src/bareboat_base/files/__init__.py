"""Files and directories of the host: their owners, and how to open files that others may write."""
