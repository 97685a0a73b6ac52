"""The architecture of the machine that runs the tests, and another one."""

import os

from bareboat_base import architectures


def _here() -> architectures.Architecture:
    found = architectures.find(os.uname().machine)
    assert found is not None, "an architecture that bareboat_base/architectures.py does not list"
    return found


HERE = _here()
OTHER = next(each for each in architectures.ALL if each.name in ("x86_64", "aarch64") and each != HERE)
