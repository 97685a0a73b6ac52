"""Run the rules over a Dockerfile or an image."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import structs

from bareboat_base.printable import one_line
from bareboat_images.lint import hadolint
from bareboat_images.lint.image import ImageSubject
from bareboat_images.lint.recipe import RecipeSubject
from bareboat_images.lint.registry import RULES
from bareboat_images.lint.rule import Finding, Rule, finding

#: hadolint's rule -> the rule that it duplicates: omitted on lines where that rule has a finding.
SAME = {
    "DL3009": "BB1001", "DL3019": "BB1001", "DL3032": "BB1001", "DL3036": "BB1001", "DL3040": "BB1001",
    "DL3042": "BB1002", "DL3060": "BB1002", "DL3006": "BB1601", "DL3007": "BB1601", "DL3013": "BB1603",
    "DL3016": "BB1603", "DL3028": "BB1603", "DL3062": "BB1603", "DL3008": "BB1604", "DL3018": "BB1604",
    "DL3033": "BB1604", "DL3037": "BB1604", "DL3041": "BB1604", "DL3004": "BB1202", "DL3005": "BB1607",
    "DL3017": "BB1607", "DL3031": "BB1607", "DL3035": "BB1607", "DL3039": "BB1607",
}  # fmt: skip


def recipe(
    subject: RecipeSubject, *, rules: Mapping[str, Rule] = RULES, ignore: Collection[str] = ()
) -> list[Finding]:
    """The findings of these rules in a Dockerfile, in order."""
    text = {step.line: one_line(step.instruction.text) for step in subject.steps}
    text |= {stage.start.line: one_line(stage.start.text) for stage in subject.recipe.stages}
    everywhere = subject.ignored.get(0, frozenset()) | set(ignore)
    found = []
    for rule in rules.values():
        if rule.recipe is None or rule.code in everywhere:
            continue
        for hit in rule.recipe(subject):
            if rule.code not in subject.ignored.get(hit.line, ()):
                hit = structs.replace(hit, edits=()) if subject.is_definition else hit
                found.append(finding(rule, hit, instruction=text.get(hit.line, "")))
    return sorted(dict.fromkeys(found), key=lambda each: each.order)


def image(
    subject: ImageSubject, *, rules: Mapping[str, Rule] = RULES, ignore: Collection[str] = ()
) -> list[Finding]:
    """The findings of these rules in an image, largest first."""
    total = subject.census.total_bytes
    found = [
        finding(rule, hit, instruction=one_line(subject.by(hit.layer)), total_bytes=total)
        for rule in rules.values()
        if rule.image is not None and rule.code not in ignore
        for hit in rule.image(subject)
    ]
    return sorted(found, key=lambda each: each.order)


def with_hadolint(
    own: list[Finding], subject: RecipeSubject, *, ignore: Collection[str] = ()
) -> list[Finding] | None:
    """These findings in a Dockerfile and hadolint's others; None if it is not installed. Raises ToolError."""
    program = hadolint.find()
    if program is None:
        return None
    heredocs = [step.last for step in subject.steps if step.instruction.heredocs]
    ours = {(each.code, each.line) for each in own}
    others = [
        each
        for each in hadolint.run(program, subject.text, heredocs=heredocs)
        if each.code not in ignore and (SAME.get(each.code, ""), each.line) not in ours
    ]
    return sorted([*own, *others], key=lambda each: each.order)
