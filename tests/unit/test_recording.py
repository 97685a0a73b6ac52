"""The pictures of the first page are of the code that is there."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "tools"))
import record


@pytest.mark.xfail(reason="older than the page: make pictures on an idle machine", strict=True)
def test_the_pictures_are_of_the_code_that_is_there() -> None:
    assert record.MADE_FROM.exists(), "the pictures have no digest: make pictures"
    assert record.MADE_FROM.read_text() == f"{record.digest()}\n", "older than the page: make pictures"
