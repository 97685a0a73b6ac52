"""Layers: from tars to trees, and back again, bit for bit."""
