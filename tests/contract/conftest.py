"""Fixtures that several files of the contract share."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_lab import base_site, lab
from trainings import place, project

__all__ = ["base_site", "lab", "place", "project"]

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(scope="module")
def contexts() -> Iterator[Any]:
    sys.path.insert(0, str(BENCH))
    try:
        yield importlib.import_module("contexts")
    finally:
        sys.path.remove(str(BENCH))
