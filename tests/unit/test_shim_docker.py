"""The shim of Docker and Podman: its table, mounts, GPUs and templates."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from stored import image_of

from bareboat_images.store import Store
from bareboat_shim import docker, docker_options, docker_run, local_images
from bareboat_shim.docker_table import TABLE
from bareboat_shim.main import main
from bareboat_shim.table import Line, Malformed, Mistake, parse


def line(*words: str) -> Line:
    return parse(TABLE, ["run", *words, "box", "true"], {})


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
        assert all(flag.meaning or flag.refused for flag in verb.flags), verb.name


def test_groups_of_verbs_have_other_names() -> None:
    assert parse(TABLE, ["image", "ls", "-q"], {}).verb.name == "images"
    assert parse(TABLE, ["image", "rm", "box"], {}).verb.name == "rmi"
    assert parse(TABLE, ["container", "run", "-it", "--rm", "box", "ls"], {}).words == ["box", "ls"]
    assert parse(TABLE, ["buildx", "build", "."], {}).verb.name == "build"
    with pytest.raises(Malformed):
        parse(TABLE, ["image"], {})


@pytest.mark.parametrize("words", [("-p", "80:80"), ("-d",), ("--privileged",), ("-m", "1g"), ("--new",)])
def test_what_has_no_meaning_here_exits_with_docker_s_code(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main("docker", "/shim", ["run", *words, "box"], {"PATH": "/bin"}) == 125
    assert capsys.readouterr().err.startswith("Error: ")


@pytest.mark.parametrize(
    ("flag", "remedy"), [("--entrypont", "--entrypoint or --help"), ("--nothing-alike", "--help")]
)
def test_an_unknown_flag_is_answered_by_those_that_it_may_mean(flag: str, remedy: str) -> None:
    with pytest.raises(Malformed, match=f"^unknown flag of run: {flag}$") as caught:
        line(flag)
    assert caught.value.remedy == remedy


def test_mounts_are_those_of_volumes_and_of_mount(tmp_path: Path) -> None:
    place = str(tmp_path)
    shown, empty = docker_run.mounts(
        line("-v", f"{place}:/a:ro,z", "--mount", f"type=bind,src={place},target=/b,readonly",
             "--mount", f"type=bind,source={place},dst=/c,readonly=false", "--tmpfs", "/d:size=1m",
             "--mount", "type=tmpfs,dst=/e,tmpfs-size=1")
    )  # fmt: skip
    assert [(each.target, each.writable) for each in shown] == [("/a", False), ("/b", False), ("/c", True)]
    assert empty == ("/d", "/e")


@pytest.mark.parametrize(
    "words",
    [
        ("-v", "name:/a"), ("-v", "/usr"), ("-v", "/usr:/a:ro:x"), ("-v", "/no/such:/a"), ("-v", "/usr:a"),
        ("--mount", "type=volume,dst=/a"), ("--mount", "type=bind,src=/usr"),
        ("--mount", "type=bind,src=/usr,dst=/a,nonsense"), ("--mount", "type=bind,dst=/a"),
    ],
)  # fmt: skip
def test_impossible_mounts_are_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(Mistake):
        docker_run.mounts(line(*words))


@pytest.mark.parametrize(
    ("words", "granted", "expected"),
    [
        ((), "2,3", None), (("--gpus", "all"), "2,3", "2,3"), (("--gpus", "all"), "", ""),
        (("--gpus", "1"), "2,3", "2"), (("--gpus", "device=1"), "2,3", "3"),
        (("--gpus", '"device=0,1"'), "", "0,1"), (("--gpus", "device=GPU-7"), "2,3", "GPU-7"),
        (("--device", "nvidia.com/gpu=all"), "2", "2"), (("--runtime=nvidia",), "", ""),
        (("--device", "/dev/kvm"), "", None),
    ],
)  # fmt: skip
def test_gpus_are_chosen_among_those_that_are_granted(
    words: tuple[str, ...], granted: str, expected: str | None
) -> None:
    assert docker_run.gpus(line(*words), granted) == expected


def test_more_gpus_than_granted_are_refused() -> None:
    with pytest.raises(Mistake, match="the job has 2 GPUs"):
        docker_run.gpus(line("--gpus", "3"), "2,3")
    with pytest.raises(Mistake, match="no machine has so many"):
        docker_run.gpus(line("--gpus", "9" * 12), "2,3")
    with pytest.raises(Mistake, match="--runtime runc"):
        docker_run.gpus(line("--runtime", "runc"), "")


def test_numbers_that_no_machine_has_are_refused() -> None:
    for text in ("0-999999999999", "x"):
        with pytest.raises(Mistake, match="no such processors here"):
            docker_options.use_processors(text)
    for text in ("nofile=" + "9" * 30, "nofile=x"):
        with pytest.raises(Mistake, match="does not allow this limit"):
            docker_run._limit([text])


def test_namespaces_of_others_are_refused() -> None:
    assert docker_run.namespaces(line()) == ["pid"]
    assert docker_run.namespaces(line("--network", "none", "--pid", "host")) == ["net"]
    for words in (("--network", "bridge"), ("--pid", "container:x"), ("--ipc", "private")):
        with pytest.raises(Mistake):
            docker_run.namespaces(line(*words))


def test_templates_have_fields_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"Id": "1", "Config": {"Cmd": ["a"]}}]
    docker.print_as(r"{{.Id}}\t{{json .Config.Cmd}} {{ .Config.Cmd }}", rows)
    assert capsys.readouterr().out == '1\t["a"] ["a"]\n'
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    docker.print_as("{{.Id}}", [{"Id": "\033]0;owned\a"}])
    assert capsys.readouterr().out == "\\x1b]0;owned\\x07\n"
    for template in ("{{range .Id}}x{{end}}", "{{.None}}"):
        with pytest.raises(Mistake):
            docker.print_as(template, rows)


def test_an_image_of_the_store_is_no_directory_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAREBOAT_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path / "store")
    image = image_of(store, {"etc/hello": "hello"})
    store.put_image(image, manifest=b"{}", config=b"{}", config_digest="sha256:" + "c" * 64)
    store.name_image("box", image.digest)
    (tmp_path / "box").mkdir()
    source = local_images.source(docker_options.name("box"))
    assert source == (image.digest, "", "docker://docker.io/library/box:latest")
