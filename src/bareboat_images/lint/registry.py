"""All rules for any image or Dockerfile. To add one: write it in the module of its group, or list a new
module here."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

from bareboat_images.lint import counts, credentials, homes, leftovers, privileges, systems
from bareboat_images.lint.rule import Rule

MODULES = (leftovers, homes, privileges, systems, counts, credentials)


def by_code(modules: Iterable[ModuleType]) -> dict[str, Rule]:
    """The rules of these modules, in the order of their codes."""
    rules: list[Rule] = [rule for module in modules for rule in module.RULES]
    return {rule.code: rule for rule in sorted(rules, key=lambda rule: rule.code)}


RULES = by_code(MODULES)
