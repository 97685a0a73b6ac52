"""The browser that all tests in here share."""

from collections.abc import Iterator
from typing import Any

import chromium
import pytest


@pytest.fixture(scope="session")
def the_one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium.started(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture(scope="module")
def browser(the_one: Any) -> Iterator[Any]:
    yield the_one
    # The site's animation would take a tenth of a CPU until the last test of all.
    the_one.get("about:blank")


@pytest.fixture(autouse=True)
def _nothing_is_requested_elsewhere(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test with a browser: no request but for files, and no error in the console."""
    yield
    if "browser" not in request.fixturenames:
        return
    browser = request.getfixturevalue("browser")
    assert chromium.requested(browser) == set()
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
