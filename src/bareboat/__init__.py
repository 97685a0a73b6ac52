"""Bareboat: any image, any cluster, no admin, no edits; and the cost measured."""

__version__ = "0.1.0"
