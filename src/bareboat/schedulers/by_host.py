"""Bash for schedulers that reach nodes one by one, by name.

A scheduler defines `on_host HOST WORD…`, which runs a command on one node. Signals for the ranks do not use
it: a second command on a node may need a slot that the first one holds, and one to a dead node may hang
forever. They are written to a file of the run's directory, which every node polls once a second.
"""

from __future__ import annotations

from bareboat import bash


def on_each_node() -> str:
    """Bash for all nodes, over the scheduler's `on_host`."""
    return bash.piece(__package__, "by_host")
