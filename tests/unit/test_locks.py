"""The lock files: complete, hashed, bound to no index, and of one mind with pyproject.toml."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from tools import executable, output

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {
    "core": (),
    "signatures": ("signatures",),
    "run": ("study", "example"),
    "docs": ("study", "docs"),
    "test": ("study", "example", "docs", "test"),
}


def locked(name: str) -> list[tuple[Requirement, list[str]]]:
    """Each requirement of a lock with its hashes."""
    text = (ROOT / "locks" / f"{name}.txt").read_text().replace("\\\n", " ")
    found = []
    for line in text.splitlines():
        requirement, *hashes = re.split(r"\s+--hash=sha256:", line.strip())
        found.append((Requirement(requirement), hashes))
    return found


def wanted(name: str) -> list[Requirement]:
    texts = list(PROJECT["dependencies"])
    for extra in EXTRAS[name]:
        texts += PROJECT["optional-dependencies"][extra]
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize("name", EXTRAS)
def test_every_line_is_one_version_with_hashes(name: str) -> None:
    for requirement, hashes in locked(name):
        assert [each.operator for each in requirement.specifier] == ["=="]
        assert hashes
        assert all(re.fullmatch(r"[0-9a-f]{64}", each.strip()) for each in hashes)


@pytest.mark.parametrize("name", EXTRAS)
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_lock_has_what_the_project_requires(name: str, python: str, machine: str) -> None:
    environment = {
        **default_environment(), "python_version": python, "python_full_version": f"{python}.0",
        "platform_machine": machine, "sys_platform": "linux",
    }  # fmt: skip
    found: dict[str, str] = {}
    for requirement, _ in locked(name):
        if requirement.marker is None or requirement.marker.evaluate(environment):
            assert requirement.name not in found, "two versions for one machine"
            found[requirement.name] = next(iter(requirement.specifier)).version
    for requirement in wanted(name):
        if requirement.name == "torch" or (
            requirement.marker is not None and not requirement.marker.evaluate(environment)
        ):
            continue
        assert requirement.specifier.contains(found[requirement.name.lower()]), requirement
    assert "hatchling" in found


@pytest.mark.parametrize("name", [*EXTRAS, "unhashed"])
def test_no_lock_names_an_index_or_a_place(name: str) -> None:
    text = (ROOT / "locks" / f"{name}.txt").read_text()
    assert not re.search(r"://|^-|^--(?!hash)|@ |/home|/opt", text, re.MULTILINE)


def test_the_one_without_a_hash_is_the_example_s_torch() -> None:
    text = (ROOT / "locks/unhashed.txt").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert lines == [text for text in PROJECT["optional-dependencies"]["example"] if "torch" in text]


FAKE = """#!/bin/bash
echo "$(basename "$0") $*" >> "$LOG"
case "$*" in
*urllib*) exit "$SILENT" ;;
*sysconfig*) echo "$PACKAGES" ;;
*'-m venv'*) mkdir -p "${@: -1}/bin"; cp "$0" "${@: -1}/bin/python" ;;
'venv '*)
  [ "$UV_WORKS" = 1 ] || exit 2
  mkdir -p "${@: -1}/bin" && cp "${0%/*}/python3" "${@: -1}/bin/python" ;;
esac
"""


def installed(folder: Path, **settings: str) -> list[str]:
    """The commands that locks/install.sh gives, with an interpreter and a uv that only note them."""
    (folder / "bin").mkdir(exist_ok=True)
    for name in ("python3", "uv"):
        executable(folder / "bin" / name, FAKE)
    environment = {
        "PATH": f"{folder}/bin:/usr/bin:/bin", "LOG": str(folder / "log"), "UV_WORKS": "1", "SILENT": "0",
        **settings,
    }  # fmt: skip
    output("locks/install.sh", folder / "env", "locks/run.txt", "-e", ".", cwd=ROOT, env=environment)
    lines = (folder / "log").read_text().splitlines()
    return [line for line in lines if " install " in line]


@pytest.mark.parametrize("settings", [{}, {"UV": "no"}, {"UV_WORKS": "0"}], ids=["uv", "pip", "uv fails"])
def test_the_packages_are_checked_against_their_hashes(tmp_path: Path, settings: dict[str, str]) -> None:
    locked, own, torch = installed(tmp_path, **settings)
    assert locked.startswith("uv pip" if not settings else "python -m pip")
    assert "--require-hashes --requirement locks/run.txt" in locked
    assert "--no-deps --no-build-isolation -e ." in own
    if settings:
        assert "--no-deps --index-url" in torch, "nothing but PyTorch comes from its index"
    else:
        assert "--torch-backend=cpu" in torch
    assert "locks/unhashed.txt" in torch


@pytest.mark.parametrize("settings", [{"SILENT": "1"}, {"TORCH": "default"}], ids=["silent", "default"])
def test_without_pytorch_s_index_the_configured_one_is_used(tmp_path: Path, settings: dict[str, str]) -> None:
    torch = installed(tmp_path, **settings)[-1]
    assert torch.startswith("python -m pip install --requirement locks/unhashed.txt")
    assert "index-url" not in torch


def test_the_tools_alone_need_no_pytorch(tmp_path: Path) -> None:
    assert not any("unhashed" in line for line in installed(tmp_path, TORCH="no"))


def test_the_code_is_checked_for_the_oldest_python_and_tests_require_no_check() -> None:
    """mypy reported a redundant cast for Python 3.13, and `make test` ended with that."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert f">={project['tool']['mypy']['python_version']}" == project["project"]["requires-python"]
    rule = r"(?m)^test: \.venv-test/\.ready\n\t\.venv-test/bin/pytest "
    assert re.search(rule, (ROOT / "Makefile").read_text())
