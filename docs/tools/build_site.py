"""Build the documentation as a site, which needs no network to be read: python docs/tools/build_site.py site

The pages of docs/ and the repository's other pages are copied to build/site-source, together with the pages
generated from the program, and Sphinx makes HTML of them. A page that no section names goes to "More".
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import generated
import reference_pages
import search_index

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "build" / "site-source"

#: Section -> pages, in the order of the navigation. A page that does not exist is left out.
SECTIONS = {
    "Start": ("tutorial", "meter", "gallery", "examples", "trouble"),
    "Run on a cluster": (
        "clusters", "failures", "schedulers", "site-settings", "run-files", "job-file", "from",
        "frameworks", "launchers", "mpi", "gpus", "fabric", "engines", "architectures", "administrators",
        "packages",
    ),
    "Images": ("images", "building", "lint", "odd-images", "shims"),
    "Measure": ("verdict", "studies", "reports", "measurement", "performance", "published"),
    "Reproduce a run": ("reproduction",),
    "Look up": (
        "reference/commands", "keys", "reference/settings", "reference/exit-codes", "python-api",
        "reference/python",
    ),
    "Background": ("security", "comparison", "papers"),
    "Project": (
        "architecture", "decisions/index", "testing", "contributing", "security-policy", "changelog",
    ),
}  # fmt: skip
#: Pages of the repository outside docs/ -> their places.
ELSEWHERE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "CHANGELOG.md": "changelog.md",
    "examples/digits.py": "examples.md",
    "examples/digits.toml": "examples.md",
    "docs/decisions/README.md": "decisions/index.md",
}


def main(output: Path) -> int:
    stage()
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-b",
        "html",
        "-c",
        str(DOCS / "tools"),
    ]
    done = subprocess.run(
        [*command, "-d", str(ROOT / "build" / "site-doctrees"), str(SOURCE), str(output)],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        check=False,
    )
    if done.returncode == 0:
        search_index.write(output)
        print(f"open {output / 'index.html'}")
    return done.returncode


def stage() -> None:
    """Write the source of the site; the reference first, to which other pages lead."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    for path, text in reference_pages.pages().items():
        _write(path, text, None)
    for page in sorted(DOCS.rglob("*.md")):
        path = str(page.relative_to(DOCS))
        _write(
            ELSEWHERE.get(f"docs/{path}", path),
            generated.filled(page.read_text(encoding="utf-8")),
            page.parent,
        )
    for path, place in ELSEWHERE.items():
        if path.endswith(".md") and path != "README.md" and not path.startswith("docs/"):
            _write(place, (ROOT / path).read_text(encoding="utf-8"), ROOT)
    _write("examples.md", _examples(), None)
    first = SOURCE / "index.md"
    pictures = r'<img class="([\w -]+)" src="([^"]+)" alt="([^"]+)">'
    first.write_text(re.sub(pictures, _image, first.read_text()))
    shutil.copytree(DOCS / "pictures", SOURCE / "pictures")
    with (SOURCE / "index.md").open("a", encoding="utf-8") as index:
        index.write(_navigation())
    for parent, pattern in (
        ("reference/commands", "bareboat-*"),
        ("decisions/index", "*"),
    ):
        page = SOURCE / f"{parent}.md"
        if page.exists():
            with page.open("a", encoding="utf-8") as file:
                file.write(f"\n```{{toctree}}\n:hidden:\n:glob:\n\n{pattern}\n```\n")


def _image(match: re.Match[str]) -> str:
    """An image in the form of MyST, which copies the file."""
    return f"```{{image}} {match[2]}\n:alt: {match[3]}\n:class: {match[1]}\n```"


def _write(place: str, text: str, directory: Path | None) -> None:
    """Write a page; `directory`: where its links lead from, if they are relative."""
    path = SOURCE / place
    path.parent.mkdir(parents=True, exist_ok=True)
    if directory is not None:
        text = _with_links(text, path, directory)
    path.write_text(text, encoding="utf-8")


def _with_links(text: str, page: Path, directory: Path) -> str:
    """The text with links to the places of pages in the site; a link to another file becomes its text."""

    def link(match: re.Match[str]) -> str:
        shown, target = match[1], match[2]
        path, hash_, anchor = target.partition("#")
        if "://" in target or target.startswith("mailto:") or not path:
            return match[0]
        file = Path(os.path.normpath(directory / path))
        name = str(file.relative_to(ROOT))
        if name == "docs/decisions":
            name += "/README.md"
        place = ELSEWHERE.get(name) or (name.removeprefix("docs/") if _is_in_docs(name) else None)
        if place is None:
            return shown if shown.startswith("`") else f"`{shown}`"
        return f"[{shown}]({os.path.relpath(SOURCE / place, page.parent)}{hash_}{anchor})"

    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    parts[::2] = [re.sub(r"(?<!!)\[([^\]\[]+)\]\(([^)\s]+)\)", link, part) for part in parts[::2]]
    return "".join(parts)


def _is_in_docs(name: str) -> bool:
    pages = (ROOT / name, SOURCE / name.removeprefix("docs/"))
    return name.startswith("docs/") and name.endswith(".md") and any(page.exists() for page in pages)


def _examples() -> str:
    lines = ["# The training of `make prove`", "", "`make prove` measures what a container costs it.", ""]
    for name, language in (("digits.toml", "toml"), ("digits.py", "python")):
        text = (ROOT / "examples" / name).read_text(encoding="utf-8").rstrip()
        lines += [f"## examples/{name}", "", f"```{language}", text, "```", ""]
    return "\n".join(lines)


def _navigation() -> str:
    existing = {
        str(page.relative_to(SOURCE).with_suffix(""))
        for page in SOURCE.rglob("*.md")
        if page.name == "index.md"
        or not (page.parent.name == "decisions" or page.name.startswith("bareboat-"))
    } - {"index"}
    text = ""
    named = {page for pages in SECTIONS.values() for page in pages}
    for title, pages in {**SECTIONS, "More": tuple(sorted(existing - named))}.items():
        found = [page for page in pages if page in existing]
        if found:
            listed = "\n".join(found)
            text += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n:maxdepth: 1\n\n{listed}\n```\n"
    return text


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "site").resolve()))
