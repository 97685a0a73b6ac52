"""What the fakes share: a real bwrap, and complaints in the manner of the tools."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

#: Set by the tests: a bwrap, and where the fake finds images.
BWRAP, IMAGES = os.environ.get("FAKE_BWRAP", ""), os.environ.get("FAKE_IMAGES", "")


def settings() -> tuple[str, str]:
    """A job calls its tool without the caller's variables: so they lie beside the program, too."""
    if BWRAP:
        return BWRAP, IMAGES
    with open(os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "fake-settings")) as stream:
        bwrap, images = stream.read().splitlines()
    return bwrap, images


def die(text: str) -> NoReturn:
    print(f"{os.path.basename(sys.argv[0])}: {text}", file=sys.stderr)
    sys.exit(1)


def become(words: list[str], environment: dict[str, str]) -> NoReturn:
    os.execve(words[0], words, environment)
