"""Files and directories of the host: whose they are, and how to open what others may write."""
