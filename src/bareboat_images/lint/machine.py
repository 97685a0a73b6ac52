"""The machine that will run an image, as rules compare it with the image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class FileSystem(Protocol):
    """`purpose`: "store" for the one that holds the store; `free_inodes`: 0 where unknown."""

    @property
    def purpose(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def free_inodes(self) -> int: ...


class Machine(Protocol):
    """`kernel`: the release of its Linux; `cpu_model`: as in /proc/cpuinfo."""

    @property
    def hostname(self) -> str: ...
    @property
    def architecture(self) -> str: ...
    @property
    def cpu_model(self) -> str: ...
    @property
    def kernel(self) -> str: ...
    @property
    def file_systems(self) -> Sequence[FileSystem]: ...
