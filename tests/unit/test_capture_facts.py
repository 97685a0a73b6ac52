"""What is known of an environment by the names of its files."""

from pathlib import Path

import pytest

from bareboat.captures import describe_of, facts
from bareboat.captures.interpreter import Interpreter


@pytest.mark.parametrize(
    "path",
    [
        "/env/lib/python3.11/site-packages/torch-2.6.0+cpu.dist-info/METADATA",
        "/usr/lib/python3/dist-packages/torch-2.6.0+cpu.egg-info/PKG-INFO",
        "/opt/conda/lib/python3.11/site-packages/torch-2.6.0+cpu-py3.11.egg-info/PKG-INFO",
        "/opt/conda/lib/python3.11/site-packages/torch-2.6.0+cpu-py3.11.egg-info",
    ],
    ids=["pip", "Debian", "conda", "distutils"],
)
def test_a_package_is_known_whatever_installed_it(path: str) -> None:
    others = ["/usr/lib/python3/dist-packages/torch/version.py", "/usr/lib/python3/dist-packages/x.egg-info"]
    assert facts.frameworks([path, *others]) == {"torch": "2.6.0+cpu"}


def test_of_two_versions_the_one_that_is_imported_is_named(tmp_path: Path) -> None:
    """An environment that sees the system's packages, whose own come first."""
    names = "environment/numpy-2.2.4.dist-info", "system/numpy-1.24.2.egg-info", "system/torch-2.6.0.egg-info"
    for name in names:
        (tmp_path / name).mkdir(parents=True)
    interpreter = Interpreter(
        executable="/usr/bin/python3",
        base_executable="/usr/bin/python3",
        prefix="/usr",
        base_prefix="/usr",
        version="3.11.2",
        stdlib="/usr/lib/python3.11",
        path=(str(tmp_path / "environment"), str(tmp_path / "system"), str(tmp_path / "missing")),
    )
    assert describe_of(interpreter).frameworks == {"numpy": "2.2.4", "torch": "2.6.0"}
