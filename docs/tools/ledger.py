"""The ledger: how much there is of the program, its tests, pages and benches, and the limits that it keeps.

    python docs/tools/ledger.py [COMMIT]

With a commit, that commit's figures stand beside today's, and how lines and comments changed.
Exits with 1 where a limit is exceeded. A limit is only lowered, to what a change has reached.

Figures are lines of all files that Git knows, except for pages, which are counted in bytes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Row:
    """A figure of the ledger: which files it counts, and how."""

    name: str
    limit: int
    goal: int
    counts: Callable[[str], bool]
    measure: Callable[[bytes], int] = lambda content: content.count(b"\n")


def _below(prefix: str, suffix: str = "") -> Callable[[str], bool]:
    return lambda path: path.startswith(prefix) and path.endswith(suffix)


ROWS = (
    Row("src", 99_820, 100_000, _below("src/")),
    Row("  base", 6_300, 6_300, _below("src/bareboat_base/")),
    Row("  images", 25_500, 25_500, _below("src/bareboat_images/")),
    Row("  launcher", 46_300, 46_300, _below("src/bareboat/")),
    Row("  study", 15_980, 16_000, _below("src/bareboat_study/")),
    Row("  shim", 3_533, 3_600, _below("src/bareboat_shim/")),
    Row("  adopt", 1_900, 1_900, _below("src/bareboat_adopt/")),
    Row("  modules", 613, 650, _below("src/", ".py"), lambda _: 1),
    Row("plugins", 1_400, 1_400, _below("plugins/")),
    Row("tests", 77_810, 78_000, _below("tests/", ".py")),
    Row("  golden", 2_890, 3_000, _below("tests/golden/")),
    Row("docs, bytes", 393_200, 400_000, _below("docs/", ".md"), len),
    Row("bench", 6_000, 6_000, lambda path: path.startswith("bench/") and path.endswith((".py", ".sh"))),
)
#: Texts whose lines and comments are looked at: shorter files are nothing where lines grew longer.
CODE = ("src/bareboat_base/", "src/bareboat_images/", "src/bareboat/", "src/bareboat_study/")


def files(commit: str | None) -> dict[str, bytes]:
    """Every file that Git knows, of the working tree or of a commit."""
    if commit is None:
        names = _git("ls-files", "-z").split(b"\0")[:-1]
        return {
            name.decode(): path.read_bytes() for name in names if (path := ROOT / name.decode()).is_file()
        }
    rows = _git("ls-tree", "-rz", commit).split(b"\0")[:-1]
    entries = [(row.partition(b"\t")[2].decode(), row.split()[2]) for row in rows if b" blob " in row]
    blobs = _git("cat-file", "--batch", given=b"\n".join(digest for _, digest in entries))
    contents = {}
    for name, _ in entries:
        head, _, blobs = blobs.partition(b"\n")
        size = int(head.split()[2])
        contents[name], blobs = blobs[:size], blobs[size + 1 :]
    return contents


def _git(*arguments: str, given: bytes = b"") -> bytes:
    return subprocess.run(("git", *arguments), cwd=ROOT, input=given, capture_output=True, check=True).stdout


def texture(contents: dict[str, bytes], package: str) -> tuple[float, float]:
    """Mean length of the lines of a package that are not blank, and the share of those that are comments."""
    lines = [
        line
        for name, content in contents.items()
        if name.startswith(package) and name.endswith(".py")
        for line in content.decode().splitlines()
        if line.strip()
    ]
    comments = sum(line.lstrip().startswith("#") for line in lines)
    return sum(map(len, lines)) / len(lines), comments / len(lines)


def main(commit: str | None) -> int:
    now = files(None)
    before = files(commit) if commit else {}
    exceeded = []
    print(f"{'':22}{'before' if before else '':>9}{'now':>9}{'limit':>9}{'goal':>9}")
    for row in ROWS:
        count, earlier = (
            sum(row.measure(of[name]) for name in of if row.counts(name)) for of in (now, before)
        )
        print(f"{row.name:22}{earlier or '':>9}{count:>9}{row.limit:>9}{row.goal:>9}")
        if count > row.limit:
            exceeded.append(f"{row.name.strip()}: {count} of at most {row.limit}")
    print(f"\n{'':22}{'characters a line':>20}{'comments, %':>20}")
    for package in CODE:
        values = [texture(of, package) for of in (before, now) if of]
        shown = (" -> ".join(f"{value[at] * (100 if at else 1):.1f}" for value in values) for at in (0, 1))
        print(f"{package:22}" + "".join(f"{each:>20}" for each in shown))
    for line in exceeded:
        print(f"error: {line}", file=sys.stderr)
    return 1 if exceeded else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1] if sys.argv[1:] else None))
