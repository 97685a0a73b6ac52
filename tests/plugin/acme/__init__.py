"""An engine, a launcher and a scheduler from another package."""
