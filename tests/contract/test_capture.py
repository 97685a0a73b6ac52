"""A capture of a real environment: the same bytes each time, and an image that other tools read and run."""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from buildah import Peer, storage
from environments import Captured, make_environment, run_in, site_packages
from processes import bareboat
from tools import executable, output, tool

from bareboat.captures import capture, inventory, look_up, look_up_unchanged, snapshot
from bareboat.captures.build import config_of
from bareboat.captures.interpreter import ask
from bareboat.model import CaptureRequest, Image
from bareboat_base.errors import UsageError
from bareboat_images.store import Store
from bareboat_images.transfer import export

NAME = "test-image"


def request_of(captured: Captured) -> CaptureRequest:
    return CaptureRequest(python=str(captured.python))


@pytest.fixture(scope="module")
def archive(captured: Captured, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "image.tar"
    export.save_archive(captured.store, captured.image, path, name=NAME)
    return path


# -- the same bytes each time ------------------------------------------------------------------------


def test_an_unchanged_environment_is_not_captured_again(captured: Captured) -> None:
    image, made = capture(request_of(captured), captured.store)
    assert not made
    assert image == captured.image


def test_an_unchanged_environment_is_not_collected_again(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it searched for MPI, CUDA and frameworks, before the job is planned."""
    monkeypatch.setattr(snapshot, "_RECENT_NS", 0)
    request, python = request_of(captured), str(captured.python)
    capture(request, captured.store)
    kept = snapshot.read(captured.store, python, request)
    assert kept is not None
    assert kept.interpreter == ask(python)
    assert look_up_unchanged(kept, captured.store) == captured.image
    path = site_packages(captured.folder) / "ware" / "part.py"
    state = path.stat()
    path.touch()
    assert snapshot.read(captured.store, python, request) is None
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def test_a_python_that_was_asked_is_not_started_again(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ask(str(captured.python))
    monkeypatch.setattr("bareboat.captures.ask", pytest.fail)
    assert capture(request_of(captured), captured.store, interpreter=asked) == (captured.image, False)
    assert look_up(request_of(captured), captured.store, interpreter=asked) == captured.image


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_the_active_environment_is_the_one_that_was_named(
    captured: Captured, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setenv(variable, str(captured.folder))
    for request in (CaptureRequest(), CaptureRequest(python=str(captured.folder / "bin/python3"))):
        assert capture(request, captured.store) == (captured.image, False)


def test_the_same_environment_gives_the_same_digest_in_another_store(
    captured: Captured, store: Store
) -> None:
    """Under another umask, and after every time stamp in the environment has changed, byte code's too."""
    for path in [captured.folder, *captured.folder.rglob("*")]:
        if path.suffix not in (".py", ".pyc"):
            os.utime(path, (1_000_000_000, 1_000_000_000), follow_symlinks=False)
    before = os.umask(0o077)
    try:
        image, made = capture(request_of(captured), store, fresh=True)
    finally:
        os.umask(before)
    assert made
    assert image.digest == captured.image.digest
    assert [each.diff_id for each in image.layers] == [each.diff_id for each in captured.image.layers]
    for kept in (image, captured.image):
        manifest = (captured.store if kept is captured.image else store).blob(kept.digest).read_bytes()
        assert "sha256:" + hashlib.sha256(manifest).hexdigest() == kept.digest


def test_sources_touched_and_compiled_again_give_the_same_digest(tmp_path: Path, store: Store) -> None:
    """What `pip install` of the same files on another day leaves: other times, and byte code to match."""
    python = make_environment(tmp_path / "venv")
    request = CaptureRequest(python=str(python))
    first, _ = capture(request, store)
    packages = site_packages(tmp_path / "venv")
    for path in packages.rglob("*.py"):
        os.utime(path, (1_600_000_000, 1_600_000_000))
    shutil.rmtree(packages / "ware" / "__pycache__")
    second, made = capture(request, store)
    assert made, "the times are part of what is looked at"
    assert second.digest == first.digest

    (packages / "ware" / "part.py").write_text("NAME = 'wars'\n")
    third, made = capture(request, store)
    assert made
    assert third.digest != first.digest
    assert [a.diff_id == b.diff_id for a, b in zip(first.layers, third.layers, strict=True)] == [
        True,
        True,
        False,
    ]
    assert os.listdir(store.root / "tmp") == []


def test_a_relative_path_of_the_interpreter_is_the_same_environment(store: Store, tmp_path: Path) -> None:
    absolute = make_environment(tmp_path / "environment")
    digests = set()
    for python in (str(absolute), os.path.relpath(absolute, tmp_path)):
        code, out, err = bareboat("image", "capture", "--python", python, store=store.root, cwd=tmp_path)
        assert code == 0, err
        digests.add(out.splitlines()[0])
    assert len(digests) == 1
    assert "copying" not in err


def test_what_is_known_of_the_image_is_right(captured: Captured) -> None:
    image = captured.image
    assert image.python == str(captured.python)
    said = output(captured.python, "-V")
    assert said == f"Python {image.python_version}\n"
    assert image.glibc == (os.confstr("CS_GNU_LIBC_VERSION") or "").removeprefix("glibc ")
    assert [each.comment for each in image.layers] == ["system", "python", "packages"]
    assert image.unresolved_libraries == ()
    for each in image.layers:
        tree = captured.store.layer(each.diff_id)
        found = [tree, *tree.rglob("*")]
        assert each.inodes == len(found)
        assert each.unpacked_bytes == sum(
            p.stat().st_size for p in found if p.is_file() and not p.is_symlink()
        )
    assert str(captured.folder) in {prefix.path for prefix in image.prefixes}


def test_all_of_a_prefix_is_in_its_layer(captured: Captured) -> None:
    """It is mounted from there alone, over a working folder that holds it."""
    for prefix in captured.image.prefixes:
        for each in captured.image.layers:
            inside = Path(f"{captured.store.layer(each.diff_id)}{prefix.path}")
            assert inside.exists() == (each.diff_id == prefix.layer), (prefix, each.comment)


def test_every_library_of_glibc_is_there(captured: Captured) -> None:
    """Also where nothing of the environment needs it: what comes from the host does, such as a GPU driver."""
    trees = [captured.store.layer(each.diff_id) for each in captured.image.layers]
    for soname in ("libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1", "libutil.so.1"):
        assert any(next(tree.rglob(soname), None) for tree in trees), soname


SOURCE = """
#include <omp.h>
#include <cmath>
#include <iostream>
int main() {
  double sum = 0;
#pragma omp parallel for reduction(+ : sum)
  for (int i = 0; i < 1000; i++) sum += std::pow(std::sin(i), 2) + std::pow(std::cos(i), 2);
  std::cout << std::lround(sum) << std::endl;
}
"""
COMPILED = "g++ -O2 -fopenmp -o program source.cpp && ./program && echo 'int x;' | gcc -shared -o x.so -xc -"


def test_with_its_compiler_it_compiles(captured: Captured, tmp_path: Path) -> None:
    """C++ with OpenMP, as torch.compile does on CPUs, and a shared library in C, as Triton does."""
    for program in ("gcc", "g++", "ld"):
        tool(program)
    (tmp_path / "source.cpp").write_text(SOURCE)
    without = run_in(captured, "sh", "-c", COMPILED, workdir=tmp_path)
    assert without.returncode == 127, without.stderr
    assert captured.image.compiler is False
    request = CaptureRequest(python=str(captured.python), compiler=True)
    image, _ = capture(request, captured.store)
    assert image.compiler is True
    done = run_in(Captured(captured.folder, captured.store, image), "sh", "-c", COMPILED, workdir=tmp_path)
    assert (done.returncode, done.stdout) == (0, "1000\n"), done.stderr
    assert (tmp_path / "x.so").exists()


def test_with_clang_where_cc_says_so(
    captured: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool("clang")
    # OpenMP's header is GCC's own.
    (tmp_path / "source.cpp").write_text('#include <iostream>\nint main() { std::cout << 1000 << "\\n"; }\n')
    monkeypatch.setenv("CC", "ccache clang -O2")
    image, _ = capture(CaptureRequest(python=str(captured.python), compiler=True), captured.store)
    assert image.environment["CC"].endswith("/clang")
    assert image.environment["CXX"].endswith("/clang++")
    words = "$CXX -O2 -o program source.cpp && ./program && echo 'int x;' | $CC -shared -o x.so -xc -"
    done = run_in(Captured(captured.folder, captured.store, image), "sh", "-c", words, workdir=tmp_path)
    assert (done.returncode, done.stdout) == (0, "1000\n"), done.stderr
    assert (tmp_path / "x.so").exists()


def test_programs_of_the_host(captured: Captured, tmp_path: Path) -> None:
    for program in ("git", "ffmpeg"):
        tool(program)
    request = CaptureRequest(python=str(captured.python), programs=("git", "ffmpeg"))
    image, _ = capture(request, captured.store)
    words = (
        "git init -q x && cd x && git -c user.name=a -c user.email=a commit -q --allow-empty -m one && "
        "git submodule status && git log --oneline | wc -l && "
        "ffmpeg -loglevel error -f lavfi -i sine=duration=1 tone.wav && wc -c < tone.wav"
    )
    done = run_in(Captured(captured.folder, captured.store, image), "sh", "-c", words, workdir=tmp_path)
    assert (done.returncode, done.stdout.split()) == (0, ["1", "88278"]), done.stderr


def test_a_program_that_is_missing_is_named(captured: Captured) -> None:
    with pytest.raises(UsageError, match="names nosuch, which is not installed"):
        inventory(CaptureRequest(python=str(captured.python), programs=("nosuch",)))


def test_a_machine_without_a_compiler_says_so(captured: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(captured.python.parent))
    with pytest.raises(UsageError, match="neither gcc nor clang is on PATH"):
        inventory(CaptureRequest(python=str(captured.python), compiler=True))


def test_a_compiler_that_does_not_answer_is_refused(
    captured: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(tmp_path / "gcc", "#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(UsageError, match="does not report where its files are"):
        inventory(CaptureRequest(python=str(captured.python), compiler=True))


def test_the_preview_is_the_capture(captured: Captured) -> None:
    found = inventory(request_of(captured))
    assert found.size_bytes >= sum(each.unpacked_bytes for each in captured.image.layers)
    assert found.size_bytes < 1.1 * sum(each.unpacked_bytes for each in captured.image.layers)


# -- the archive, as other tools read it -------------------------------------------------------------


def test_skopeo_agrees_on_the_digest_and_the_layers(captured: Captured, archive: Path) -> None:
    seen = json.loads(output(tool("skopeo"), "inspect", f"oci-archive:{archive}"))
    assert seen["Digest"] == captured.image.digest
    assert seen["Layers"] == [each.diff_id for each in captured.image.layers]
    assert (seen["Os"], seen["Created"]) == ("linux", "1980-01-01T00:00:00Z")
    assert sorted(seen["Env"]) == sorted(f"{k}={v}" for k, v in captured.image.environment.items())


@pytest.fixture(scope="module")
def podman(archive: Path) -> Iterator[Peer]:
    with storage() as made:
        made("podman", "load", "--quiet", "--input", archive)
        yield made


def test_podman_loads_it_and_shows_the_same(captured: Captured, podman: Peer) -> None:
    (seen,) = json.loads(podman("podman", "image", "inspect", f"localhost/bareboat/{NAME}:latest"))
    assert seen["Digest"] == captured.image.digest
    assert seen["RootFS"]["Layers"] == [each.diff_id for each in captured.image.layers]
    assert seen["Config"]["Cmd"] == ["/bin/sh"]
    assert sorted(seen["Config"]["Env"]) == sorted(f"{k}={v}" for k, v in captured.image.environment.items())


def _image_of(tree: Path, root: Path) -> tuple[Image, Store]:
    from bareboat.model import Layer
    from bareboat_images.layers import layer

    store = Store(root)
    diff_id, size = layer.digest_tree(str(tree))
    with store.scratch() as scratch:
        shutil.copytree(tree, scratch / "tree", symlinks=True)
        store.publish(scratch / "tree", store.layer(diff_id))
    layers = (Layer(diff_id=diff_id, size_bytes=size, unpacked_bytes=0, inodes=0),)
    config = config_of(layers, machine=os.uname().machine, environment={"A": "b"})
    return export.keep(store, Image(digest="", layers=layers), config=config), store


def test_what_podman_unpacked_runs(captured: Captured, podman: Peer) -> None:
    """chroot into podman's copy: that needs no runtime and no cgroups, which not every machine has."""
    program = "import sys, json, hashlib, ctypes, ware; print(sys.prefix, ware.NAME)"
    shell = 'podman=$1; shift; exec chroot "$("$podman" image mount "$1")" "$2" -I -c "$3"'
    said = podman.as_its_user(
        "sh",
        "-c",
        shell,
        "sh",
        tool("podman"),
        f"localhost/bareboat/{NAME}:latest",
        str(captured.python),
        program,
    )
    assert said == f"{captured.folder} ware"
    podman.as_its_user(tool("podman"), "image", "unmount", "--all")


def test_odd_names_reach_podman(tmp_path: Path) -> None:
    """Long names, newlines, links and modes: the pax records that we write are those that Go reads."""
    tree = tmp_path / "tree"
    deep = f"{'d' * 200}/{'e' * 200}"
    (tree / deep).mkdir(parents=True)
    for name in ("a\nb", "ü", os.fsdecode(b"\xff\xfe"), "x" * 255, " ", "-rf", f"{deep}/deep"):
        (tree / name).write_text(name, errors="surrogateescape")
    (tree / "link").symlink_to("t" * 300)
    (tree / "tmp").mkdir()
    (tree / "tmp").chmod(0o1777)
    image, store = _image_of(tree, tmp_path / "store")
    export.save_archive(store, image, tmp_path / "odd.tar", name="odd")
    find = 'find . -mindepth 1 -printf "%m %P %l\\0"'
    shell = f'cd "$("$1" image mount "$2")" && {find}'
    with storage() as other:
        other("podman", "load", "--quiet", "--input", tmp_path / "odd.tar")
        done = other.as_its_user("sh", "-c", shell, "sh", tool("podman"), "localhost/bareboat/odd:latest")
    listed = subprocess.run(["sh", "-c", find], cwd=tree, capture_output=True, check=True)
    assert sorted(done.split("\0")) == sorted(listed.stdout.decode(errors="surrogateescape").split("\0"))
