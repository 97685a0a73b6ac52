"""Findings as text, as JSON and as SARIF. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from bareboat_base.printable import one_line
from bareboat_images.lint.rule import Finding, Rule, Severity, size

_NAMES = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


class Report(Struct, frozen=True, kw_only=True):
    """The findings in a Dockerfile or an image. `name`: the path of the file or the name of the image;
    `notes`: what was not checked, and why; `unread`: of an image, what could not be read."""

    name: str
    is_image: bool
    findings: Sequence[Finding]
    notes: Sequence[str] = ()
    unread: Sequence[str] = ()

    def fails(self, threshold: str) -> bool:
        """Whether a finding has this severity or a higher one; "never": no."""
        if threshold == "never":
            return False
        return any(each.severity.rank >= Severity(threshold).rank for each in self.findings)

    def written(self, form: str, rules: Mapping[str, Rule]) -> str:
        """The findings as text, json or sarif, made by these rules."""
        if form == "text":
            return self.text()
        return json.dumps(self.sarif(rules) if form == "sarif" else self.json(), indent=2)

    def text(self) -> str:
        """The findings, in order, and a summary at the end."""
        lines = []
        for each in self.findings:
            lines.append(f"{each.code}  {each.severity:<7}  {self._place(each)}{_cost(each)}")
            lines.append(f"  {one_line(each.message, limit=1000)}")
            if self.is_image and each.instruction:
                lines.append(f"  by: {one_line(each.instruction, limit=100)}")
            if each.paths and each.size_bytes and each.paths[0] not in each.message:
                lines.append(f"  largest: {one_line(each.paths[0])}")
            lines.append(
                f"  {'see' if each.source == 'hadolint' else 'fix'}: {one_line(each.remedy, limit=1000)}"
            )
        found = f"{one_line(self.name)}: {self.summary}"
        if self.saved_bytes:
            share = sum(each.share for each in self.findings if each.saves)
            found += f"; {size(self.saved_bytes)}, {100 * share:.1f}% of the image, can be saved"
        return "\n".join([*lines, found])

    @property
    def saved_bytes(self) -> int:
        """The bytes by which the image can shrink."""
        return sum(each.size_bytes for each in self.findings if each.saves)

    @property
    def summary(self) -> str:
        """The number of findings of each severity."""
        counts = Counter(each.severity for each in self.findings)
        found = [
            f"{counts[each]} {_NAMES[each]}{'s' if counts[each] != 1 else ''}"
            for each in reversed(Severity)
            if counts[each]
        ]
        return ", ".join(found) or "no findings"

    def _place(self, each: Finding) -> str:
        if not self.is_image:
            return f"{one_line(self.name)}:{each.line}"
        return f"layer {each.layer}" if each.layer else "image"

    def json(self) -> dict[str, Any]:
        """The findings for other programs."""
        return {
            "name": self.name,
            "kind": "image" if self.is_image else "dockerfile",
            "counts": {each.value: sum(f.severity is each for f in self.findings) for each in Severity},
            "saved_bytes": self.saved_bytes,
            "findings": [_entry(each) for each in self.findings],
            "notes": list(self.notes),
        }

    def sarif(self, rules: Mapping[str, Rule]) -> dict[str, Any]:
        """The findings for code hosts and editors, as SARIF 2.1.0."""
        from bareboat_images.lint import sarif

        return sarif.document(
            self.findings, name=self.name, is_image=self.is_image, notes=self.notes, rules=rules
        )


def _cost(each: Finding) -> str:
    if not each.size_bytes:
        return ""
    share = f" ({100 * each.share:.1f}%)" if each.share else ""
    return f"  {size(each.size_bytes)}{share}"


def _entry(each: Finding) -> dict[str, Any]:
    return {
        "code": each.code,
        "severity": each.severity.value,
        "source": each.source,
        "message": each.message,
        "remedy": each.remedy,
        "line": each.line or None,
        "last_line": each.last or None,
        "layer": each.layer or None,
        "instruction": each.instruction,
        "paths": list(each.paths),
        "bytes": each.size_bytes,
        "files": each.files,
        "share": round(each.share, 6),
    }
