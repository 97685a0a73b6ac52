"""Rules about the number of files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bareboat_images.lint.image import ImageSubject
from bareboat_images.lint.rule import Hit, Rule, Severity

#: Above this number, a parallel file system's metadata server limits how fast a job starts.
MANY = 100_000


def _inodes(subject: ImageSubject) -> Iterator[Hit]:
    count = sum(len(names) for names in subject.census.final.values())
    where = _largest(subject)
    if subject.inode_quota is not None:
        if count > subject.inode_quota:
            yield Hit(
                message=f"the image has {count:,} files and directories, and the quota is "
                f"{subject.inode_quota:,}; "
                f"most are in {where}",
                files=count,
                severity=Severity.ERROR,
            )
            return
    elif subject.site is not None:
        for system in subject.site.file_systems:
            if system.purpose == "store" and 0 < system.free_inodes < count:
                yield Hit(
                    message=f"the image has {count:,} files and directories, and {system.path} on "
                    f"{subject.site.hostname} has {system.free_inodes:,} free; most are in {where}",
                    files=count,
                    severity=Severity.ERROR,
                )
                return
    if count > MANY:
        yield Hit(
            message=f"the image has {count:,} files and directories; most are in {where}",
            files=count,
            severity=Severity.INFO,
        )


def _largest(subject: ImageSubject) -> str:
    """The three directories, up to three levels deep, with the most files."""
    found: Counter[str] = Counter()
    for folder, names in subject.census.final.items():
        found["/".join(folder.split("/")[:4]) or "/"] += len(names)
    return ", ".join(f"{folder} ({count:,})" for folder, count in found.most_common(3))


RULES = (
    Rule(
        code="BB1501",
        title="The image has more files than a quota allows, or very many.",
        why="Each file takes an inode of your quota where the image is a directory, and a request to the "
        "metadata server at each start.",
        remedy="use the image as one file: bareboat image save IMAGE sif:image.sif; remove tests and caches",
        image=_inodes,
        site=True,
    ),
)
