"""Bash for schedulers whose nodes are reached one by one, by their names.

A scheduler gives `on_host HOST WORD…`, which runs a command on one node. Signals for the ranks do not go that
way: a second command on a node may want a slot that the first one has, and one to a dead node may hang for
ever. They are written into a file of the run's folder, into which every node's part looks once a second.
"""

from __future__ import annotations

from bareboat import bash


def on_each_node() -> str:
    """Bash for all nodes, over the scheduler's `on_host`."""
    return bash.piece(__package__, "by_host")
