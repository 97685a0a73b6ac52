"""Tar archives and compressed streams: read with limits, written canonically."""
