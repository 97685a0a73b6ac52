"""Files and directories of the host, as a container sees them."""

from __future__ import annotations

from msgspec import Struct

from bareboat_base.errors import UsageError


class Mount(Struct, frozen=True, kw_only=True):
    """A file or directory of the host, seen inside the container."""

    source: str
    target: str
    writable: bool = False

    def __post_init__(self) -> None:
        for what, path in (("source", self.source), ("target", self.target)):
            if "\0" in path:
                raise UsageError(
                    f"the mount {what} {path!r} contains a NUL byte, which no path has",
                    key="mounts",
                    remedy="correct the path",
                )
        if not self.target.startswith("/"):
            raise UsageError(
                f"the mount target {self.target!r} is not absolute",
                remedy='write mounts as "SOURCE", "SOURCE:TARGET" or "SOURCE:TARGET:rw"',
            )


class DriverFile(Struct, frozen=True, kw_only=True):
    """A library or program of the host: the name that programs search for, and its real path."""

    name: str
    path: str
