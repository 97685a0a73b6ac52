"""Parts of a build that need no sandbox: modes, places, layers, configurations, the filter."""

import json
import os
import socket
import stat
import struct
import tarfile
import time
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bareboat_base.errors import ImageError
from bareboat_images.builder import config, copying, dockerfile_checks, downloads, layer, sandbox, solver
from bareboat_images.builder.copying import mode_change
from bareboat_images.builder.files import Files
from bareboat_images.builder.metadata import Below, Metadata
from bareboat_images.builder.options import Machine, Options
from bareboat_images.builder.places import PlaceError, User, find_user, locate
from bareboat_images.builder.sandbox import Bind, Sandbox
from bareboat_images.builder.stage import _owner
from bareboat_images.layers.tar_split import rebuild
from bareboat_images.layers.unpack import unpack
from bareboat_images.layers.view import View
from bareboat_images.recipe import stages
from bareboat_images.recipe.faults import RecipeError
from bareboat_images.recipe.ignore import Ignored
from bareboat_images.store import Store
from bareboat_images.tar import writer as tarwriter
from bareboat_images.tar.limits import Limits


@pytest.mark.parametrize(
    ("text", "before", "after", "is_folder"),
    [
        ("755", 0o600, 0o755, False),
        ("4711", 0o600, 0o4711, False),
        ("u+x", 0o644, 0o744, False),
        ("+x", 0o644, 0o755, False),
        ("go-rwx", 0o777, 0o700, False),
        ("u=rw,go=", 0o777, 0o600, False),
        ("a+X", 0o644, 0o644, False),
        ("a+X", 0o644, 0o755, True),
        ("a+X", 0o744, 0o755, False),
        ("u+s,+t", 0o755, 0o5755, False),
    ],
)
def test_modes(text: str, before: int, after: int, is_folder: bool) -> None:
    assert mode_change(text)(before, is_folder) == after


@pytest.fixture
def view(tmp_path: Path) -> View:
    for name in ("usr/bin", "etc", "a/b"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "bin").symlink_to("usr/bin")
    (tmp_path / "up").symlink_to("../../../etc")
    (tmp_path / "absolute").symlink_to("/usr")
    (tmp_path / "dangling").symlink_to("/not/there")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\napp:x:5:6::/home/app:\nbad\n")
    (tmp_path / "etc/group").write_text("staff:x:50:\n")
    return View([tmp_path])


@pytest.mark.parametrize(
    ("path", "found", "there", "missing"),
    [
        ("/", "/", True, ()),
        ("/bin/x", "/usr/bin/x", False, ()),
        ("/absolute/bin", "/usr/bin", True, ()),
        ("/up", "/etc", True, ()),
        ("/../../etc/passwd", "/etc/passwd", True, ()),
        ("/new/deep/er", "/new/deep/er", False, ("/new", "/new/deep")),
        ("/dangling", "/not/there", False, ("/not",)),
        ("/new/../etc", "/etc", True, ()),
        ("/a/b/..", "/a", True, ()),
    ],
)
def test_places(view: View, path: str, found: str, there: bool, missing: tuple[str, ...]) -> None:
    place = locate(view, path)
    assert (place.path, place.node is not None, place.missing) == (found, there, missing)


@pytest.mark.parametrize("path", ["/loop", "/etc/passwd/x", "/loop/x"])
def test_places_that_lead_nowhere(view: View, path: str) -> None:
    with pytest.raises(PlaceError):
        locate(view, path)


def test_users(view: View) -> None:
    def numbers(text: str) -> tuple[int, int, str]:
        user = find_user(view, text)
        return user.uid, user.gid, user.home

    assert numbers("app") == (5, 6, "/home/app")
    assert numbers("5") == (5, 6, "/home/app")
    assert numbers("7") == (7, 7, "/")
    assert numbers("app:staff") == (5, 50, "/home/app")
    assert numbers("1:2") == (1, 2, "/")
    assert find_user(View([]), "root").uid == 0
    for text in ("nobody", "app:none", "", "2147483648", "1:4294967295", "99999999999"):
        with pytest.raises(PlaceError):
            find_user(view, text)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("COPY --chown=1:3000000000 a /a", "3000000000 is no user or group ID: the largest is 2147483647"),
        ("USER 4294967295", "4294967295 is no user or group ID"),
        ("RUN echo " + "a" * (1 << 17), "an argument of 131,077 bytes; the limit is 131,071"),
        ('RUN ["a", "' + "a" * (1 << 17) + '"]', "an argument of 131,072 bytes"),
        ("RUN <<EOF\n" + "a" * (1 << 17) + "\nEOF", "an argument of 131,073 bytes"),
    ],
)
def test_what_no_step_can_do_is_refused_before_the_first(step: str, message: str) -> None:
    found = stages.read(f"FROM base\n{step}\n", given={}, builtin={})
    with pytest.raises(RecipeError, match=message) as caught:
        dockerfile_checks.check(found.stages[0], found.escape)
    assert caught.value.line == 2
    good = stages.read("FROM base\nUSER 2147483647:$G\nCOPY --chown=a:b c d\n", given={}, builtin={})
    dockerfile_checks.check(good.stages[0], good.escape)


def test_a_link_of_the_system_is_not_removed_for_a_copied_directory() -> None:
    link = os.stat_result((stat.S_IFLNK | 0o777, *[0] * 9))
    error = copying._in_the_way("/bin", "a directory", link)
    assert "the image has a link there" in error.message
    assert error.remedy.endswith("COPY SOURCE/bin/ /bin/")
    assert "RUN rm" in copying._in_the_way("/bin", "a directory").remedy


def test_a_layer_unpacks_to_the_tree_that_it_was_made_of(tmp_path: Path) -> None:
    made = tmp_path / "made"
    tree = made / "tree"
    (tree / "d/opaque").mkdir(parents=True)
    (tree / "d/f").write_bytes(b"x" * 3000)
    os.link(tree / "d/f", tree / "d/link")
    (tree / "s").symlink_to("d/f")
    os.mkfifo(tree / "p", 0o640)
    (tree / ("n" * 120)).write_bytes(b"")
    os.setxattr(tree / "d/f", "user.note", b"\0value")
    os.setxattr(tree / "d/opaque", "user.overlay.opaque", b"y")
    os.setxattr(tree / "d", "user.overlay.origin", b"")
    os.chmod(tree / "d/f", 0o4755)
    os.chmod(tree / "d", 0o500)
    os.mknod(tree / "gone", stat.S_IFCHR, 0)
    facts, described = layer.finish(
        made, layer.Rules(owner=lambda path: (70_000_000, 5) if path == b"d/f" else (0, 0))
    )
    assert described == {b"d/f": Metadata((70_000_000, 5), 0o4755), b"d/link": Metadata((0, 0), 0o4755)}
    data = BytesIO()
    assert rebuild(tree, made / "recipe", data.write) == facts.diff_id
    assert data.tell() == facts.size_bytes
    data.seek(0)
    with tarfile.open(fileobj=data) as archive:
        members = {member.name: member for member in archive.getmembers()}
    assert (members["d/f"].mode, members["d/f"].uid, members["d/f"].gid) == (0o4755, 70_000_000, 5)
    assert members["d/f"].pax_headers["SCHILY.xattr.user.note"] == "\0value"
    assert {"d/opaque/.wh..wh..opq", ".wh.gone", "p"} <= members.keys()
    assert members["d/link"].linkname == "d/f"
    assert members["d"].mode == 0o500
    again = tmp_path / "again"
    again.mkdir()
    unpacked = unpack(iter([data.getvalue()]), again, name="a layer", limits=Limits(), recipe=None)
    assert (unpacked.inodes, unpacked.unpacked_bytes) == (facts.inodes, facts.unpacked_bytes)
    for path in ("d", "d/f", "d/opaque", "s", "p", "gone"):
        one, other = os.lstat(tree / path), os.lstat(again / path)
        assert one.st_mode == other.st_mode
        assert path == "gone" or int(one.st_mtime) == int(other.st_mtime)
        assert os.listxattr(tree / path, follow_symlinks=False) == os.listxattr(
            again / path, follow_symlinks=False
        )


def test_capabilities_lose_the_namespace_of_the_build() -> None:
    kept = struct.pack("<4I", 1 << 13, 0, 0, 0)
    of_namespace = struct.pack("<I", 0x03000001) + kept + struct.pack("<I", 1000)
    assert layer._capability(of_namespace) == struct.pack("<I", 0x02000001) + kept
    plain = struct.pack("<I", 0x02000001) + kept
    assert layer._capability(plain) == plain


def test_names_that_mean_something_in_a_layer_are_refused(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/.wh.etc").write_text("content")
    with pytest.raises(ImageError, match=r"\.wh\.etc"):
        layer.finish(tmp_path, layer.Rules())


@given(st.integers(0, 2**40), st.integers(0, 2**40), st.binary(max_size=300))
def test_headers_hold_any_owner_and_attribute(uid: int, gid: int, value: bytes) -> None:
    data = tarwriter.header(
        b"name",
        b"0",
        mode=0o644,
        style=tarwriter.Style(owner=(uid, gid), xattrs=((b"user.a", value),) if value else ()),
    )
    with tarfile.open(fileobj=BytesIO(data + tarwriter.END), errors="surrogateescape") as archive:
        (member,) = archive.getmembers()
    assert (member.uid, member.gid) == (uid, gid)
    if value:
        found = member.pax_headers["SCHILY.xattr.user.a"]
        assert found.encode("utf-8", "surrogateescape") == value


def test_secrets_are_in_no_argument() -> None:
    box = Sandbox(
        layers=("/l",),
        upper="/u",
        work="/w",
        environment={"TOKEN": "hidden-1"},
        binds=(Bind(source="", target="/run/s", data=b"hidden-2", mode=0o400),),
    )
    words = sandbox.arguments(box, b"")
    assert "hidden" not in " ".join(word for word in words if isinstance(word, str))
    assert sum(b"hidden" in word.content for word in words if not isinstance(word, str)) == 2
    assert "--cap-drop" in words
    assert "CAP_SYS_ADMIN" not in words


@pytest.mark.parametrize(
    "box",
    [
        Sandbox(tree="/t", environment={"HOME": "/root\0--bind\0/\0/host"}),
        Sandbox(tree="/t", environment={"A\0--bind\0/\0/host": ""}),
        Sandbox(tree="/t", workdir="/a\0b"),
        Sandbox(tree="/t", binds=(Bind(source="/a", target="/b\0c"),)),
    ],
)
def test_no_value_ends_where_an_image_wants(box: Sandbox) -> None:
    with pytest.raises(ValueError, match="NUL byte"):
        sandbox.arguments(box, b"")


def test_a_damaged_configuration_is_refused() -> None:
    for data in (
        b"", b"[]", b'{"config": {"Env": [1]}}', b'{"config": {"User": 5}}', b'{"history": 1}',
        b'{"config": {"Env": ["A=b\\u0000--bind"]}}', b'{"config": {"Labels": {"a\\u0000": "b"}}}',
        b'{"config": {"WorkingDir": "/\\ud800"}}', b'{"config": {"Healthcheck": {"Test": ["a\\u0000b"]}}}',
    ):  # fmt: skip
        with pytest.raises(ImageError):
            config.of_base(data, 0, name="x")
    made = config.of_base(b'{"config": null}', 2, name="x")
    assert made.environment["PATH"] == config.DEFAULT_PATH
    assert len(made.history) == 2


@pytest.mark.parametrize(
    ("given", "found"),
    [("", "/"), ("a/b", "/a/b"), ("/a/../../b/", "/b"), ("//a", "/a"), ("../../..", "/"), ("/", "/")],
)
def test_the_working_directory_of_a_base_stays_inside(given: str, found: str) -> None:
    data = json.dumps({"config": {"WorkingDir": given, "Env": ["=nameless", "A=b"]}}).encode()
    made = config.of_base(data, 0, name="x")
    assert made.workdir == found
    assert made.execution["WorkingDir"] in (found, "")
    assert made.environment == {"A": "b", "PATH": config.DEFAULT_PATH}


def test_a_volume_without_a_path_is_refused() -> None:
    (stage,) = stages.read("FROM scratch\nVOLUME /a $b\n", given={}, builtin={}).stages
    with pytest.raises(RecipeError, match="volume's path is empty") as caught:
        config.scratch().apply(stage.steps[0], ("/a", ""), {})
    assert caught.value.line == 2


def test_a_silent_server_does_not_delay_the_end_of_a_stopped_build(tmp_path: Path) -> None:
    class Stopped(Exception):
        pass

    def stopped() -> None:
        if time.monotonic() > began + 0.5:
            raise Stopped

    work = SimpleNamespace(check_stopped=stopped, reporter=SimpleNamespace(bytes=lambda *_: None))
    began = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(Stopped):
        downloads._fetch(work, f"http://127.0.0.1:{server.getsockname()[1]}/x", tmp_path / "x")  # type: ignore[arg-type]
    assert time.monotonic() - began < 10


class _Silent:
    """Reports nothing."""

    def begin(self, *_: object) -> None: ...

    def end(self, *_: object, **__: object) -> None: ...


@pytest.mark.parametrize("line", ["ENV A{}=$A0", "ARG A{}=$A0"])
def test_settings_take_time_in_proportion_to_their_number(line: str, tmp_path: Path) -> None:
    """What is set so far is not copied at each line, which takes 8 to 100 s for 12,000 of them."""
    count = 12_000
    rows = "".join(f"{line.format(number + 1)}\n" for number in range(count))
    options = Options(dockerfile=f"FROM scratch\n{rows}", name="Dockerfile", context=None)
    machine = Machine(name="x86_64", image=MagicMock(), engine=MagicMock())
    began = time.process_time()
    store = Store(tmp_path)
    made = solver.build(store, options, machine, _Silent())  # type: ignore[arg-type]
    assert time.process_time() - began < 5
    history = json.loads(store.config(made.image))["history"]
    assert len(history) == count + 1


def test_an_entry_made_again_is_the_users_that_made_it(tmp_path: Path) -> None:
    """A layer between removed the directory with the file that somebody else owned."""
    for name in ("low/d", "high"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "low/d/f").touch()
    (tmp_path / "low/g").touch()
    (tmp_path / "high/.wh.d").touch()
    low = {path: Metadata((5, 6), 0o2755) for path in (b"d", b"d/f", b"g")}
    below = Below(View([tmp_path / "low", tmp_path / "high"]), {str(tmp_path / "low"): low})
    owner = _owner(below, {b"h": (7, 7)}, User(uid=9, gid=9))
    assert [owner(path) for path in (b"d", b"d/f", b"g", b"h")] == [(9, 9), (9, 9), (5, 6), (7, 7)]
    assert _owner(below, {}, None)(b"d/f") == (0, 0)
    assert (below.mode(b"d", 0o755), below.mode(b"g", 0o755)) == (0o755, 0o2755)


def test_excluded_directories_are_searched_once_for_exceptions(tmp_path: Path) -> None:
    path = tmp_path
    for _ in range(60):
        path /= "d"
        path.mkdir()
        (path / "f").touch()
    ignored = Ignored(["d", f"!{path.relative_to(tmp_path)}/f"])
    looked = 0

    class Counted(Ignored):
        def ignores(self, path: str) -> bool:
            nonlocal looked
            looked += 1
            return ignored.ignores(path)

    found = Files([tmp_path], name="x", ignored=Counted(["!d"]))
    assert [item.path.count("/") for item in found.walk("") if not item.is_folder] == [60]
    assert looked < 6 * 60
