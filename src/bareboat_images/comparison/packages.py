"""Compare the packages of two images by kind and name. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from bareboat_images.sbom.package import KINDS, Package


class PackageChange(Struct, frozen=True, kw_only=True):
    """A package whose versions differ. `name`: with the architecture if it has several. `before`, `after`:
    the versions that only one image has, sorted; a version that is installed twice may occur twice."""

    kind: str
    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def title(self) -> str:
        """The usual name of the kind."""
        return KINDS.get(self.kind, self.kind)

    @property
    def state(self) -> str:
        """`added`, `removed` or `changed`."""
        if not self.before:
            return "added"
        return "changed" if self.after else "removed"


def compare(before: Iterable[Package], after: Iterable[Package]) -> list[PackageChange]:
    """The packages that differ, sorted by kind and name. The directory of a package does not matter."""
    counts = [_counted(packages) for packages in (before, after)]
    names = counts[0].keys() | counts[1].keys()
    several = Counter((kind, name) for kind, name, _ in names)
    found = []
    for key in names:
        kind, name, architecture = key
        one, other = (count.get(key, Counter()) for count in counts)
        if one != other:
            found.append(
                PackageChange(
                    kind=kind,
                    name=f"{name}:{architecture}" if architecture and several[kind, name] > 1 else name,
                    before=tuple(sorted((one - other).elements())),
                    after=tuple(sorted((other - one).elements())),
                )
            )
    order = list(KINDS)
    return sorted(
        found,
        key=lambda each: (order.index(each.kind) if each.kind in order else len(order), each.kind, each.name),
    )


def _counted(packages: Iterable[Package]) -> dict[tuple[str, str, str], Counter[str]]:
    found: dict[tuple[str, str, str], Counter[str]] = {}
    for each in packages:
        qualifiers = dict(each.qualifiers)
        name = each.name.lower().replace("_", "-") if each.kind == "pypi" else each.name
        version = each.version
        if each.kind == "conda" and qualifiers.get("build"):
            version += f"-{qualifiers['build']}"
        if each.kind == "rpm" and qualifiers.get("epoch", "") not in ("", "0"):
            version = f"{qualifiers['epoch']}:{version}"
        found.setdefault((each.kind, name, qualifiers.get("arch", "")), Counter())[version] += 1
    return found
