"""Patterns of modules: none is compiled by an import, and all can be compiled."""

import gc
import importlib
import pkgutil

import bareboat
import bareboat_base
import bareboat_images
from bareboat_base.expressions import _Expression

_STANDALONE = (".gallery.", ".__main__")


def test_every_pattern_of_a_module_can_be_compiled() -> None:
    for package in (bareboat, bareboat_base, bareboat_images):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not any(part in f"{module.name}." for part in _STANDALONE):
                importlib.import_module(module.name)
    found = [each for each in gc.get_objects() if isinstance(each, _Expression)]
    assert len(found) > 200
    assert all(each.pattern for each in found)
