"""The program on the first node of a job before its ranks start: it prints a line for each mismatch between
what the nodes give the job and what the job requested. With `rules` one text without dependencies, for the
Python 3.6 or newer of any node.

    python -c … CONTROL
"""

import os
import sys

from bareboat.health.rules import find_marks, read_nodes


def judge(control: str) -> "list[str]":
    """The mismatches, from the files of the job script."""
    lines, hosts = [], ""
    for name in sorted(os.listdir(control)):
        if name == "hosts" or name.startswith("limits."):
            path = os.path.join(control, name)
            with open(path, errors="replace") as stream:
                text = stream.read(1 << 20)
            if name == "hosts":
                hosts = text
            else:
                lines.append((text, os.stat(path).st_mtime))
    return find_marks(read_nodes(lines, hosts.split()))


if __name__ == "__main__":
    sys.stdout.writelines(mark + "\n" for mark in judge(sys.argv[1]))
