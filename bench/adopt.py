"""Compare the reader of old jobs with facts about public scripts: `python bench/adopt.py DIR`.

`adopt/corpus.json` has one entry per script: its repository, commit and path, and the facts that follow from
it by reading; null for a script of which no complete job file follows. The scripts themselves are not here:
DIR has each as REPOSITORY/PATH.
"""

import collections
import json
import sys
from pathlib import Path
from typing import Any

from bareboat_adopt import adopt

CORPUS = Path(__file__).parent / "adopt" / "corpus.json"
#: Of the shell that would submit the scripts.
ENVIRONMENT = {"HOME": "/home/user", "USER": "user"}


def result(facts: dict[str, Any] | None, file: Path) -> str:
    """One line: whether the job file of a script has the facts."""
    text = file.read_text(encoding="utf-8", errors="surrogateescape")
    old = Path("/proj/old") / file.name
    made = adopt.read(old, text, Path("/proj/old/job.toml"), ENVIRONMENT)
    if made.verdict == "refused":
        return "refused, rightly" if facts is None else "refused, though clear"
    if facts is None:
        return "WRONG: not refused"
    wrong = [name for name, fact in facts.items() if _given(made.facts, name, fact) != fact]
    if not facts.get("gpus_per_rank") and made.facts.get("gpus_per_rank"):
        wrong.append("gpus_per_rank")
    return f"WRONG: {', '.join(wrong)}" if wrong else f"right, understood {made.verdict}"


def _given(facts: dict[str, Any], name: str, fact: Any) -> Any:
    """A value of the job file; of the command, as many words as the fact has."""
    value = facts.get(name)
    return value[: len(fact)] if name == "command" and value else value


def main() -> int:
    top = Path(sys.argv[1])
    counts: collections.Counter[str] = collections.Counter()
    for entry in json.loads(CORPUS.read_text()):
        file = top / entry["repository"] / entry["path"]
        found = result(entry["facts"], file) if file.exists() else "missing"
        counts[found.partition(":")[0]] += 1
        if found.startswith(("WRONG", "missing")) or "though" in found:
            print(f"{entry['repository']} {entry['path']}: {found}")
    for name, count in sorted(counts.items()):
        print(f"{count:4} {name}")
    return 1 if counts["WRONG"] or counts["missing"] else 0


if __name__ == "__main__":
    sys.exit(main())
