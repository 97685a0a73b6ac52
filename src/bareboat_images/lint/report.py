"""Findings as text and as JSON. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from bareboat_base.printable import one_line
from bareboat_images.lint.rule import Finding, Severity, size

_NAMES = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def text(findings: Sequence[Finding], *, name: str, is_image: bool) -> str:
    """The findings, in order, and a summary at the end."""
    lines = []
    for each in findings:
        lines.append(f"{each.code}  {each.severity:<7}  {_place(each, name, is_image=is_image)}{_cost(each)}")
        lines.append(f"  {one_line(each.message, limit=1000)}")
        if is_image and each.instruction:
            lines.append(f"  by: {one_line(each.instruction, limit=100)}")
        if each.paths and each.size_bytes and each.paths[0] not in each.message:
            lines.append(f"  largest: {one_line(each.paths[0])}")
        lines.append(
            f"  {'see' if each.source == 'hadolint' else 'fix'}: {one_line(each.remedy, limit=1000)}"
        )
    total = saved(findings)
    found = f"{one_line(name)}: {summary(findings)}"
    if total:
        share = sum(each.share for each in findings if each.saves)
        found += f"; {size(total)}, {100 * share:.1f}% of the image, can be saved"
    fixable = len({(each.code, each.line) for each in findings if each.fixable})
    if fixable:
        found += f"; {fixable} can be corrected by --fix"
    return "\n".join([*lines, found])


def saved(findings: Sequence[Finding]) -> int:
    """The bytes by which the image can shrink."""
    return sum(each.size_bytes for each in findings if each.saves)


def summary(findings: Sequence[Finding]) -> str:
    """The number of findings of each severity."""
    counts = Counter(each.severity for each in findings)
    found = [
        f"{counts[each]} {_NAMES[each]}{'s' if counts[each] != 1 else ''}"
        for each in reversed(Severity)
        if counts[each]
    ]
    return ", ".join(found) or "no findings"


def _place(each: Finding, name: str, *, is_image: bool) -> str:
    if not is_image:
        return f"{one_line(name)}:{each.line}"
    return f"layer {each.layer}" if each.layer else "image"


def _cost(each: Finding) -> str:
    if not each.size_bytes:
        return ""
    share = f" ({100 * each.share:.1f}%)" if each.share else ""
    return f"  {size(each.size_bytes)}{share}"


def as_json(
    findings: Sequence[Finding], *, name: str, is_image: bool, notes: Sequence[str] = ()
) -> dict[str, Any]:
    """The findings for other programs."""
    return {
        "name": name,
        "kind": "image" if is_image else "dockerfile",
        "counts": {each.value: sum(f.severity is each for f in findings) for each in Severity},
        "saved_bytes": saved(findings),
        "findings": [_entry(each) for each in findings],
        "notes": list(notes),
    }


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
        "fixable": each.fixable,
    }
