"""Layers: converts tars to file trees, and back to bit-identical tars."""
