"""What a job's program is and requires, found without running it: file, interpreter, libraries, modules."""
