"""Chromium with the network cut off, in which tests open pages."""

import contextlib
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools import tool

#: No name resolves, and no address but this machine's is reached.
OFFLINE = (
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--proxy-server=127.0.0.1:9",
    "--proxy-bypass-list=<-loopback>",
)


@contextlib.contextmanager
def started(profile: Path) -> Iterator[Any]:
    """A driver, whose browser logs its requests."""
    chromium, driver = tool("chromium"), tool("chromedriver")
    if importlib.util.find_spec("selenium") is None:
        pytest.skip("Selenium is not installed: pip install selenium")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (
        "--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
        f"--user-data-dir={profile}", *OFFLINE,
    ):  # fmt: skip
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    running = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield running
    finally:
        running.quit()


def show(browser: Any, page: Path, *, width: int = 1400, dark: bool = False) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    browser.get(page.as_uri())


def requested(browser: Any) -> set[str]:
    """What was requested since the last call, but for files."""
    sent = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = {
        each["params"]["request"]["url"] for each in sent if each["method"] == "Network.requestWillBeSent"
    }
    return {url for url in urls if not url.startswith(("file:", "data:", "chrome:", "about:"))}
