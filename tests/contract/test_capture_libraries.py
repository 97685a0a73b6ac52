"""Shared libraries from outside of the environment: the image has those that it would load now."""

import subprocess
from pathlib import Path

import msgspec
import pytest
from environments import Captured, make_environment, run_in, site_packages
from tools import output, tool

from bareboat.captures import capture, look_up
from bareboat.captures.command import CapturedCommand
from bareboat.model import CaptureRequest
from bareboat_images.store import Store

CALL = "import ctypes, sys; print(*(ctypes.CDLL(each).ask() for each in sys.argv[1:]))"


def compile_library(path: Path, value: int) -> None:
    """A library whose function answers this."""
    path.parent.mkdir(exist_ok=True)
    source = f"int answer(void) {{ return {value}; }}"
    command = [tool("gcc"), "-shared", "-fPIC", "-xc", "-", "-o", str(path)]
    subprocess.run(command, input=source, text=True, check=True)


def compile_module(path: Path, library: Path, *, runpath: str = "") -> Path:
    """A library of the environment that needs that one."""
    flags = ["-Wl,--enable-new-dtags", f"-Wl,-rpath,{runpath}"] if runpath else []
    source = "int answer(void); int ask(void) { return answer(); }"
    found = [f"-L{library.parent}", f"-l{library.stem.removeprefix('lib')}"]
    command = [tool("gcc"), "-shared", "-fPIC", "-xc", "-", "-o", str(path), *found, *flags]
    subprocess.run(command, input=source, text=True, check=True)
    return path


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    make_environment(tmp_path / "venv")
    return tmp_path / "venv"


def native(environment: Path, module: Path) -> str:
    """What a module answers on this machine."""
    return output(environment / "bin/python", "-c", CALL, module).strip()


def answers(environment: Path, store: Store, *modules: Path) -> str:
    """What the modules answer in a container of the environment as it is now."""
    image, _ = capture(CaptureRequest(python=str(environment / "bin/python")), store)
    workdir = environment.parent / "work"
    workdir.mkdir(exist_ok=True)
    command = ("python", "-c", CALL, *map(str, modules))
    outcome = run_in(Captured(environment, store, image), *command, workdir=workdir)
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout.strip()


def test_a_library_that_was_built_again_is_captured_again(
    environment: Path, tmp_path: Path, store: Store
) -> None:
    library = tmp_path / "lib" / "libanswer.so"
    compile_library(library, 1)
    module = compile_module(site_packages(environment) / "module.so", library, runpath=str(library.parent))
    request = CaptureRequest(python=str(environment / "bin/python"))
    assert answers(environment, store, module) == "1"
    assert not capture(request, store)[1]
    library.unlink()
    compile_library(library, 2)
    assert isinstance(look_up(request, store), str), "a plan says that it will be captured"
    assert answers(environment, store, module) == "2"
    assert not capture(request, store)[1]


def test_a_link_that_leads_to_another_library_is_followed_again(
    environment: Path, tmp_path: Path, store: Store
) -> None:
    """As `current -> 1.0` of a module's installation."""
    for name, value in (("1.0", 1), ("2.0", 2)):
        compile_library(tmp_path / name / "libanswer.so", value)
    current = tmp_path / "current"
    current.symlink_to("1.0")
    module = compile_module(
        site_packages(environment) / "module.so", current / "libanswer.so", runpath=str(current)
    )
    assert answers(environment, store, module) == "1"
    current.unlink()
    current.symlink_to("2.0")
    assert answers(environment, store, module) == "2"


def test_ld_library_path_belongs_to_the_environment(
    environment: Path, tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`module load` of another version changes it, or what is in its directories."""
    for name, value in (("a", 1), ("b", 2)):
        compile_library(tmp_path / name / "libanswer.so", value)
    (tmp_path / "first").mkdir()
    module = compile_module(site_packages(environment) / "module.so", tmp_path / "a" / "libanswer.so")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/first:{tmp_path}/a")
    assert answers(environment, store, module) == "1"
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/first:{tmp_path}/b")
    assert answers(environment, store, module) == "2"
    compile_library(tmp_path / "first" / "libanswer.so", 3)
    assert answers(environment, store, module) == "3"


def test_ld_library_path_goes_before_runpath(
    environment: Path, tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for the program that the user starts in this shell."""
    for name, value in (("own", 1), ("asked", 2)):
        compile_library(tmp_path / name / "libanswer.so", value)
    library = tmp_path / "own" / "libanswer.so"
    module = compile_module(site_packages(environment) / "module.so", library, runpath=str(library.parent))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "asked"))
    assert native(environment, module) == "2"
    assert answers(environment, store, module) == "2"


def test_two_files_find_two_libraries_of_one_name(environment: Path, tmp_path: Path, store: Store) -> None:
    """By their RUNPATH, which LD_LIBRARY_PATH would override."""
    modules = []
    for name, value in (("one", 1), ("two", 2)):
        library = tmp_path / name / "libanswer.so"
        compile_library(library, value)
        path = site_packages(environment) / f"{name}.so"
        modules.append(compile_module(path, library, runpath=str(library.parent)))
    for number, module in enumerate(modules, 1):  # one process loads a name only once
        assert native(environment, module) == str(number)
        assert answers(environment, store, module) == str(number)


def test_a_damaged_memory_of_a_capture_is_forgotten(environment: Path, store: Store) -> None:
    request = CaptureRequest(python=str(environment / "bin/python"))
    first, _ = capture(request, store)
    for path in (store.root / "captures").iterdir():
        path.write_bytes(msgspec.json.encode({"digest": 3}))
    second, made = capture(request, store)
    assert made
    assert second == first


# The command of a job: a layer above the environment.


def compile_program(path: Path, library: Path, exits: int = 0) -> Path:
    """A program that prints what the library answers."""
    source = (
        "#include <stdio.h>\nint answer(void); "
        f'int main(void) {{ printf("%d\\n", answer()); return {exits}; }}'
    )
    path.parent.mkdir(exist_ok=True)
    found = [f"-L{library.parent}", f"-l{library.stem.removeprefix('lib')}"]
    command = [tool("gcc"), "-xc", "-", "-o", str(path), *found, f"-Wl,-rpath,{library.parent}"]
    subprocess.run(command, input=source, text=True, check=True)
    return path


def test_a_command_is_a_layer_above_its_environment(environment: Path, store: Store) -> None:
    """Of a program in a mounted directory, the libraries only: another build of it changes no image."""
    top = environment.parent
    compile_library(top / "lib/libown.so", 7)
    work = top / "work"
    program = compile_program(work / "heat", top / "lib/libown.so")
    request = CaptureRequest(python=str(environment / "bin/python"))
    base, _ = capture(request, store)
    shown = CapturedCommand(str(program), (str(work),), is_shown=True)
    assert "libraries" in str(look_up(request, store, shown))
    image, made = capture(request, store, command=shown)
    assert not made
    assert image.layers[:-1] == base.layers
    assert look_up(request, store, shown) == image
    outcome = run_in(Captured(environment, store, image), str(program), workdir=work)
    assert outcome.stdout == "7\n", outcome.stderr
    view = store.view(image)
    assert (view.find(str(top / "lib/libown.so")) is not None, view.find(str(program))) == (True, None)
    compile_program(program, top / "lib/libown.so", exits=3)
    assert capture(request, store, command=shown) == (image, False)
    compile_library(top / "lib/libown.so", 8)
    again, _ = capture(request, store, command=shown)
    assert again.layers[:-1] == base.layers
    assert again != image
    copied, _ = capture(request, store, command=CapturedCommand(str(program), (), is_shown=False))
    assert store.view(copied).is_file(str(program))
    assert copied.layers[:-1] == base.layers


def test_a_command_whose_files_are_in_the_environment_adds_nothing(environment: Path, store: Store) -> None:
    request = CaptureRequest(python=str(environment / "bin/python"))
    base, _ = capture(request, store)
    command = CapturedCommand(tool("env"), (), is_shown=False)
    assert look_up(request, store, command) == base
    assert capture(request, store, command=command) == (base, False)
