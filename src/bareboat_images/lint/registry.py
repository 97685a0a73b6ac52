"""All rules for any image or Dockerfile. To add one: write it in the module of its group, or list a new
module here."""

from __future__ import annotations

from bareboat_images.lint import (
    caches,
    counts,
    credentials,
    homes,
    leftovers,
    pinning,
    privileges,
    references,
    systems,
)
from bareboat_images.lint.rule import Rule

_MODULES = (
    caches,
    leftovers,
    homes,
    privileges,
    references,
    systems,
    counts,
    pinning,
    credentials,
)

RULES: dict[str, Rule] = {
    rule.code: rule for rule in sorted((r for m in _MODULES for r in m.RULES), key=lambda rule: rule.code)
}
