"""Run the rules over a Dockerfile or an image."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from bareboat_base.printable import one_line
from bareboat_images.lint import hadolint
from bareboat_images.lint.image import ImageSubject
from bareboat_images.lint.recipe import RecipeSubject
from bareboat_images.lint.registry import RULES
from bareboat_images.lint.rule import Finding, Rule, finding


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
    """These findings in a Dockerfile and hadolint's; None if it is not installed. Raises ToolError."""
    program = hadolint.find()
    if program is None:
        return None
    heredocs = [step.last for step in subject.steps if step.instruction.heredocs]
    others = [
        each for each in hadolint.run(program, subject.text, heredocs=heredocs) if each.code not in ignore
    ]
    return sorted([*own, *others], key=lambda each: each.order)
