"""System libraries that a layer's files need and the image lacks, taken from this machine.

Wheels rely on a few libraries that every distribution has (PEP 600); a captured environment or a small image
has only those that its own programs need.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from bareboat.model import Image, Site
from bareboat_base.elf import binary, loader
from bareboat_base.expressions import expression
from bareboat_base.versions import numbers
from bareboat_images.layers.view import View

#: glibc's own libraries, which match exactly one libc.so.6.
_OF_GLIBC = expression(
    r"(?:ld-linux.*|libc|libm|libdl|libpthread|librt|libutil|libresolv|libanl|libnss_.*|libmvec)\.so\.\d+"
)
#: Network drivers, which are only loaded when their own libraries exist.
_PLUGINS = frozenset({"libfabric", "ucx"})
_TRIPLET = expression(r"[a-z0-9_]+-linux-gnu[a-z0-9]*")


def complete(image: Image, view: View, prefix: Path, site: Site) -> tuple[str, ...]:
    """Copy missing libraries into `prefix`/lib; return those that are nowhere on this machine, or do not
    match the image's C library."""
    files = [
        path
        for path in (*prefix.glob("lib/**/*.so*"), *prefix.glob("bin/*"))
        if path.is_file() and path.parent.name not in _PLUGINS
    ]
    own = {path.name for path in prefix.glob("lib/**/*.so*")}
    there = _names(image, view)
    here = loader.of_machine()
    left: list[str] = []
    while files:
        path = files.pop()
        with binary.opened(str(path.resolve())) as elf:
            needed = elf.needed
        for soname in needed:
            if soname in own or soname in there or soname in left:
                continue
            found = here.find(soname)
            if found is None or not _fits(soname, found, image, site):
                left.append(soname)
                continue
            target = prefix / "lib" / soname
            shutil.copyfile(found, target)
            target.chmod(0o755)
            own.add(soname)
            files.append(target)
    return tuple(left)


def _fits(soname: str, path: str, image: Image, site: Site) -> bool:
    if image.glibc is None:
        return False
    if _OF_GLIBC.fullmatch(soname):
        return image.glibc == site.glibc
    with binary.opened(os.path.realpath(path)) as elf:
        wanted = elf.glibc
    return wanted is None or numbers(wanted) <= numbers(image.glibc)


def _names(image: Image, view: View) -> set[str]:
    """The libraries that the image's loader finds in its default directories."""
    folders = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"]
    for base in ("/lib", "/usr/lib"):
        folders += [f"{base}/{name}" for name in view.names(base) if _TRIPLET.fullmatch(name)]
    folders += [each for each in image.environment.get("LD_LIBRARY_PATH", "").split(":") if each]
    return {name for folder in folders for name in view.names(folder)}
