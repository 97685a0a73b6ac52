"""Hatchling's hook: the wheel has the man pages, written at build time from the program's parsers."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManPages(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        root = Path(self.root)
        sys.path[:0] = [str(root / "src"), str(root / "docs" / "tools")]
        import manual

        self._directory = tempfile.mkdtemp(prefix="bareboat-man-")
        for page in manual.write(Path(self._directory)):
            build_data["shared_data"][str(page)] = f"share/man/man1/{page.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        shutil.rmtree(self._directory)
