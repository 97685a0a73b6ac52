"""Findings as SARIF 2.1.0, for code hosts and editors. Pure.

Source: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from bareboat_base import __version__
from bareboat_images.lint import hadolint
from bareboat_images.lint.registry import RULES
from bareboat_images.lint.rule import Finding, Rule, Severity

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def document(
    findings: Sequence[Finding],
    *,
    name: str,
    is_image: bool,
    notes: Sequence[str] = (),
    rules: Mapping[str, Rule] = RULES,
) -> dict[str, Any]:
    """A log with a run of Bareboat, and one of hadolint if it found anything. `name`: the path of the file or
    the name of the image."""
    runs = []
    for source in dict.fromkeys(("bareboat", *(each.source for each in findings))):
        own = [each for each in findings if each.source == source]
        codes = sorted({each.code for each in own})
        run: dict[str, Any] = {
            "tool": {"driver": _driver(source, [_rule(code, rules.get(code)) for code in codes])},
            "columnKind": "unicodeCodePoints",
            "results": [_result(each, codes.index(each.code), name, is_image=is_image) for each in own],
        }
        if notes and source == "bareboat":
            run["invocations"] = [
                {
                    "executionSuccessful": True,
                    "toolExecutionNotifications": [
                        {"level": "note", "message": {"text": note}} for note in notes
                    ],
                }
            ]
        runs.append(run)
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": runs}


def _driver(source: str, rules: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    driver: dict[str, Any] = {"name": source, "rules": rules}
    if source == "bareboat":
        driver |= {"semanticVersion": __version__}
    else:
        driver |= {"informationUri": "https://github.com/hadolint/hadolint"}
    return driver


def _rule(code: str, rule: Rule | None) -> dict[str, Any]:
    if rule is None:
        return {"id": code, "helpUri": hadolint.page(code)}
    return {
        "id": code,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": rule.remedy},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _result(each: Finding, index: int, name: str, *, is_image: bool) -> dict[str, Any]:
    text = each.message + (f"; to fix it: {each.remedy}" if each.source == "bareboat" else "")
    found: dict[str, Any] = {
        "ruleId": each.code,
        "ruleIndex": index,
        "level": _LEVELS[each.severity],
        "message": {"text": text},
        "locations": [_layer(each, name) if is_image else _line(each, name)],
        "partialFingerprints": {"bareboat/v1": _fingerprint(each)},
    }
    if each.size_bytes:
        found["properties"] = {"bytes": each.size_bytes, "files": each.files, "share": round(each.share, 6)}
    return found


def _line(each: Finding, name: str) -> dict[str, Any]:
    region = {"startLine": max(each.line, 1), "endLine": max(each.last, each.line, 1)}
    return {"physicalLocation": {"artifactLocation": {"uri": _uri(name)}, "region": region}}


def _layer(each: Finding, name: str) -> dict[str, Any]:
    place = f"layer {each.layer}" if each.layer else "config"
    found: dict[str, Any] = {
        "logicalLocations": [{"name": place, "fullyQualifiedName": f"{name}/{place}", "kind": "resource"}]
    }
    if each.paths:
        found["physicalLocation"] = {"artifactLocation": {"uri": _uri(each.paths[0].lstrip("/"))}}
    return found


def _uri(path: str) -> str:
    return quote(path.encode("utf-8", "surrogateescape"), safe="/") or "."


def _fingerprint(each: Finding) -> str:
    """A hash that stays the same when lines or layers move."""
    parts = (each.code, each.message, each.instruction, *each.paths)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]
