"""The rules of docs/lint.md: a table of all, and a section for each."""

from __future__ import annotations

from bareboat.lint.registry import GROUPS, RULES
from bareboat_images.lint.rule import Rule


def text() -> str:
    lines = ["| code | severity | checks | what it finds |", "|---|---|---|---|"]
    for rule in RULES.values():
        lines.append(
            f"| [{rule.code}](#{rule.code.lower()}) | {rule.severity} | {_checks(rule)} | {rule.title} |"
        )
    for start, title in GROUPS.items():
        lines += ["", f"## {title}"]
        for rule in RULES.values():
            if rule.code.startswith(start):
                lines += ["", *_section(rule)]
    return "\n".join(lines) + "\n"


def _checks(rule: Rule) -> str:
    named = [
        name for name, check in (("Dockerfile", rule.recipe), ("image", rule.image)) if check is not None
    ]
    return ", ".join([*named, *(["site"] if rule.site else [])])


def _section(rule: Rule) -> list[str]:
    lines = [
        f"### {rule.code}",
        "",
        f"**{rule.title}** {rule.why}",
        "",
        f"To fix it: {_escaped(rule.remedy)}",
    ]
    if rule.bad:
        for title, text in (("Found", rule.bad), ("Not found", rule.good)):
            lines += ["", f"{title} in:", "", "```text template", *text.rstrip("\n").split("\n"), "```"]
    return lines


def _escaped(remedy: str) -> str:
    """As code, since a remedy contains commands and Markdown characters."""
    return f"`{remedy}`" if "`" not in remedy else remedy
