"""Write recipes for Spack, EasyBuild, conda-forge and Lmod: docs/packages.md.

    python distribution/recipes.py dist/bareboat-0.1.0.tar.gz dist/recipes \
      --homepage URL --url URL-OF-THE-ARCHIVE

They name the archive's version and digest, so they are written when a version is released.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path

TEMPLATES = Path(__file__).parent / "templates"
#: Template -> the path of what it becomes.
RECIPES = {
    "spack-repository.yaml.in": "spack/spack_repo/bareboat/repo.yaml",
    "spack-package.py.in": "spack/spack_repo/bareboat/packages/py_bareboat/package.py",
    "spack-isal.py.in": "spack/spack_repo/bareboat/packages/py_isal/package.py",
    "easyconfig.eb.in": "easybuild/Bareboat-@VERSION@-GCCcore-13.3.0.eb",
    "conda-recipe.yaml.in": "conda/recipe.yaml",
    "modulefile.lua.in": "lmod/bareboat/@VERSION@.lua",
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("archive", type=Path, metavar="ARCHIVE", help="the source archive of `make dist`")
    parser.add_argument("into", type=Path, metavar="DIR", help="the directory for the recipes")
    parser.add_argument("--homepage", required=True, metavar="URL", help="where the project is described")
    parser.add_argument("--url", required=True, metavar="URL", help="where the archive can be downloaded")
    parser.add_argument("--prefix", default="/opt/bareboat", metavar="DIR", help="of the module file's PATH")
    wanted = parser.parse_args(arguments)
    version = re.fullmatch(r"bareboat-(\d[0-9A-Za-z.]*)\.tar\.gz", wanted.archive.name)
    if version is None or not wanted.archive.is_file():
        parser.error(f"{wanted.archive} is not a source archive of Bareboat; try: make dist")
    values = {
        "VERSION": version[1],
        "SHA256": hashlib.sha256(wanted.archive.read_bytes()).hexdigest(),
        "HOMEPAGE": wanted.homepage,
        "URL": wanted.url,
        "PREFIX": wanted.prefix,
    }
    for template, path in RECIPES.items():
        target = wanted.into / fill(path, values)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(fill((TEMPLATES / template).read_text(), values))
        print(target)
    return 0


def fill(text: str, values: dict[str, str]) -> str:
    """A template with its values. Raises KeyError for a name that has none."""
    return re.sub(r"@([A-Z0-9]+)@", lambda found: values[found[1]], text)


if __name__ == "__main__":
    sys.exit(main())
