"""The Python API: jobs, plans, runs and studies as objects. `import bareboat` exports it."""
