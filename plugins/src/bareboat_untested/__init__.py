"""Engines and schedulers that were never run on the real tool: written from its documentation."""
