"""The shim of udocker: its table, and what it shares with that of Docker."""

from __future__ import annotations

from pathlib import Path

import pytest
from images import tar

from bareboat_base.errors import UsageError
from bareboat_shim import docker_options, local_images, udocker_run
from bareboat_shim.main import main
from bareboat_shim.table import Malformed, Mistake, parse
from bareboat_shim.udocker_table import TABLE


@pytest.mark.parametrize(
    ("verb", "flag"), [(verb, flag) for verb in TABLE.verbs for flag in verb.flags if flag.refused]
)
def test_every_refused_flag_is_refused_by_name(verb, flag) -> None:
    for name in flag.names:
        with pytest.raises(Mistake, match=f"{flag.names[0]} is not supported: "):
            parse(TABLE, [verb.name, name, *(["x"] if flag.value else []), "box"], {})


def test_no_name_stands_for_two_flags() -> None:
    for verb in TABLE.verbs:
        names = [name for flag in verb.flags for name in flag.names]
        assert len(names) == len(set(names)), verb.name


def test_a_command_keeps_its_flags() -> None:
    line = parse(
        TABLE, ["run", "-v=/a:/b", "--volume=/c", "--env", "A=1", "--rm", "box", "ls", "-v", "--rm"], {}
    )
    assert line.words == ["box", "ls", "-v", "--rm"]
    assert line.values("volume") == ["/a:/b", "/c"]
    assert line.value("env") == "A=1"


def test_variables_come_from_the_command_line_the_shell_and_files(tmp_path: Path) -> None:
    outside = {"SHELL_S": "outside"}
    assert docker_options.variables(["A=1=2", "SHELL_S", "NONE", "EMPTY="], outside) == {
        "A": "1=2",
        "SHELL_S": "outside",
        "EMPTY": "",
    }
    with pytest.raises(Malformed):
        docker_options.variables(["=1"], outside)
    file = tmp_path / "variables"
    file.write_text("# none\n\nA='quotes stay'\nSHELL_S\n")
    assert docker_options.of_file(str(file), outside) == {"A": "'quotes stay'", "SHELL_S": "outside"}
    with pytest.raises(Mistake, match="cannot read"):
        docker_options.of_file(str(tmp_path / "none"), outside)


def test_mounts_have_sources_targets_and_options(tmp_path: Path) -> None:
    place = str(tmp_path)
    assert not docker_options.mount(place, "/a/", ["ro", "z"], "-v").writable
    assert docker_options.mount(place, "/a/", ["rw"], "-v").target == "/a"
    for target, options in (("/", []), ("a", []), ("/a", ["exec"])):
        with pytest.raises(Mistake):
            docker_options.mount(place, target, options, "-v")
    with pytest.raises(Mistake, match="does not exist"):
        docker_options.mount(f"{place}/none", "/a", [], "-v")
    inner, outer = (docker_options.mount(place, target, [], "-v") for target in ("/b/c", "/b"))
    assert docker_options.in_order([inner, outer, inner]) == (outer, inner)


def test_users_and_groups_are_looked_up_by_name_and_id(tmp_path: Path) -> None:
    (tmp_path / "passwd").write_text(
        "damaged\nroot:x:0:0:root:/root:/bin/sh\na:x:\u00b2:0::/:\nb:x:1:1:\fc:x:0:0::/:::/:\n"
        "eve:x:7:8::/home/eve:/bin/sh\n"
    )
    (tmp_path / "group").write_text("damaged\nusers:x:100:\n")
    passwd, group = str(tmp_path / "passwd"), str(tmp_path / "group")
    eve = docker_options.Entry("eve", 7, 8, "/home/eve")
    assert docker_options.entry(passwd, "eve") == docker_options.entry(passwd, "7") == eve
    assert docker_options.entry(passwd, "adam") is docker_options.entry(None, "eve") is None
    assert docker_options.entry(passwd, "\u00b2") is docker_options.entry(passwd, "c") is None
    assert docker_options.group(group, "\u00b2") is None
    assert docker_options.group(group, "users") == docker_options.group(group, "100") == 100
    assert docker_options.group(group, "none") is None


@pytest.mark.parametrize(
    ("text", "written", "local", "reference"),
    [
        ("debian", "debian:latest", "debian:latest", "docker.io/library/debian:latest"),
        ("lab/box:1", "lab/box:1", "lab-.box:1", "docker.io/lab/box:1"),
        ("localhost:5000/a:2", "localhost:5000/a:2", "localhost.-5000-.a:2", "localhost:5000/a:2"),
        ("docker.io/library/debian:12", "debian:12", "debian:12", "docker.io/library/debian:12"),
    ],
)  # fmt: skip
def test_images_have_docker_s_names(text: str, written: str, local: str, reference: str) -> None:
    name = docker_options.name(text)
    assert (name.written, name.local, name.reference) == (written, local, reference)
    assert docker_options.of_store(name.local) == docker_options.of_store(reference) == name


def test_what_docker_does_not_name_is_no_image() -> None:
    with pytest.raises(UsageError):
        docker_options.name("Upper/case")
    assert docker_options.of_store("Upper") is None


def test_another_machine_s_platform_is_refused() -> None:
    local_images.check_platform(f"linux/{local_images.architecture()}")
    with pytest.raises(Mistake, match="do not run here"):
        local_images.check_platform("linux/mips64")


def test_errors_have_the_tool_s_form(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("udocker", "/shim", ["run", "--publish=80:80", "box"], {"PATH": "/bin"}) == 1
    assert capsys.readouterr().err.startswith("Error: --publish is not supported: ")
    assert main("udocker", "/shim", ["run", "-v", "/no/such:/x", "box"], {"PATH": "/bin"}) != 0
    assert main("udocker", "/shim", ["-V"], {"PATH": "/bin"}) == 0
    assert TABLE.version in capsys.readouterr().out


def test_volumes_of_udocker_have_no_options(tmp_path: Path) -> None:
    def volumes(*words: str) -> list[str]:
        return [each.target for each in udocker_run.volumes(parse(TABLE, ["run", *words, "box"], {}))]

    place = str(tmp_path)
    assert volumes("-v", f"{place}:/b", f"--volume={place}") == ["/b", place]
    assert volumes("-v", f"{place}:/b", "--novol", place) == []
    with pytest.raises(Mistake, match="no options"):
        volumes("-v", f"{place}:/b:ro")
    with pytest.raises(Mistake, match="invalid host volume path") as raised:
        volumes("-v", "relative:/b")
    assert raised.value.code == 2


@pytest.mark.parametrize(
    "files",
    [
        {}, {"manifest.json": b"no"}, {"manifest.json": b"[1]"}, {"index.json": b"[]"}, {"index.json": None},
        {"manifest.json": b"[" * 100_000},
    ],
)  # fmt: skip
def test_what_is_no_archive_of_images_is_refused(tmp_path: Path, files: dict[str, bytes | None]) -> None:
    (tmp_path / "image.tar").write_bytes(tar(files))
    with pytest.raises(Mistake, match="is not an archive of images"):
        local_images.load(str(tmp_path / "image.tar"))
    (tmp_path / "text").write_text("text")
    with pytest.raises(Mistake, match="is not an archive of images"):
        local_images.load(str(tmp_path / "text"))
    with pytest.raises(Mistake, match="cannot read"):
        local_images.load(str(tmp_path / "none"))
