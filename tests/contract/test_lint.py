"""`bareboat image lint` as users call it: on Dockerfiles and built images, with hadolint and SARIF."""

import contextlib
import functools
import http.server
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import make_driver, make_site
from building import Builds
from tools import executable, path_without, tool

from bareboat_base import codec
from bareboat_base.errors import ToolError
from bareboat_images.lint import hadolint

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n"


@pytest.fixture
def dockerfile(tmp_path: Path) -> Path:
    path = tmp_path / "Dockerfile"
    path.write_text("FROM debian\nRUN apt-get update && apt-get install -y gcc\nCOPY a /root/a\n")
    return path


def lint(builds: Builds, *arguments: str | Path, code: int = 0) -> dict[str, Any]:
    said = builds.bareboat("image", "lint", "--json", "--for", "none", *arguments, code=code)
    found: dict[str, Any] = json.loads(said.out)
    return found


def codes(builds: Builds, *arguments: str | Path, code: int = 0) -> set[str]:
    return {each["code"] for each in lint(builds, *arguments, "--fail-on", "never", code=code)["findings"]}


# Images.


def test_a_built_image(builds: Builds) -> None:
    """What only the tar of a layer has, and what later layers hide, with bytes."""
    builds.build(
        "FROM base\nCOPY big /opt/big\nCOPY other /opt/other\nCOPY id_rsa /opt/key/\n"
        "RUN chmod -R 750 /opt/big\n"
        "RUN rm /opt/other && cp /bin/busybox /opt/tool && chmod 4755 /opt/tool\n"
        "RUN mkdir -p /root/sw/bin && cp /bin/busybox /root/sw/bin/x && rm -r /opt/key\n"
        "USER app\n",
        {"big": b"x" * 3_000_000, "other": b"y" * 2_000_000, "id_rsa": KEY},
        "-t", "smelly:1",
    )  # fmt: skip
    found = lint(builds, "smelly:1", code=1)["findings"]
    by_code = {each["code"]: each for each in found}
    assert {"BB1004", "BB1005", "BB1101", "BB1201", "BB1205", "BB1701"} <= set(by_code)
    assert by_code["BB1005"]["bytes"] == 3_000_000
    assert by_code["BB1004"]["bytes"] == 2_000_000
    assert "chmod -R" in by_code["BB1005"]["instruction"]
    assert by_code["BB1201"]["paths"] == ["/opt/tool"]
    assert "hides" in by_code["BB1701"]["message"]
    assert [each["bytes"] for each in found] == sorted((each["bytes"] for each in found), reverse=True)
    builds.build("FROM base\nCOPY --chmod=755 big /opt/big\n", {"big": b"x"}, "-t", "clean:1")
    assert codes(builds, "clean:1") == set()


def test_the_bytes_found_are_those_that_a_correction_saves(builds: Builds, tmp_path: Path) -> None:
    """A download that stays and a second copy by chown, from a real server, before and after a correction."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        info = tarfile.TarInfo("data")
        info.size = 4_000_000
        tar.addfile(info, io.BytesIO(os.urandom(info.size)))
    served = tmp_path / "served"
    served.mkdir()
    (served / "data-1.0.tar.gz").write_bytes(archive.getvalue())
    with serving(served) as port:
        text = (
            "FROM base\nCOPY app /opt/app\n"
            f"RUN cd /opt && wget -q http://127.0.0.1:{port}/data-1.0.tar.gz && tar xzf data-1.0.tar.gz\n"
        )
        before = builds.image(text, {"app": b"x" * 1_000_000}, "-t", "before:1")
        found = lint(builds, "before:1", code=1)
        archives = [each for each in found["findings"] if each["code"] == "BB1003"]
        assert [each["paths"] for each in archives] == [["/opt/data-1.0.tar.gz"]]
        corrected = text.replace("tar xzf data-1.0.tar.gz", "tar xzf data-1.0.tar.gz && rm data-1.0.tar.gz")
        context = builds.context(corrected, {"app": b"x" * 1_000_000})
        after = json.loads(builds.bareboat("image", "build", "--json", "-t", "after:1", context).out)
    assert "BB1003" not in codes(builds, "after:1")
    saved = before.size_bytes - builds.store.image(after["digest"]).size_bytes
    assert abs(saved - archives[0]["bytes"]) < 20_000


def test_an_image_that_was_pulled(builds: Builds, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "tmp").mkdir(parents=True)
    (tree / "tmp/a").write_bytes(b"x" * 2_000_000)
    for name in ("bin", "etc", "usr"):
        (tree / name).mkdir()
    builds.bareboat("image", "pull", tree, "--name", "pulled")
    assert "BB1003" in codes(builds, "pulled")
    assert "BB1003" in codes(builds, tree)  # by its reference


def test_a_damaged_layer_is_reported_and_the_rest_is_checked(builds: Builds) -> None:
    builds.build("FROM base\nCOPY a /tmp/a\n", {"a": b"x" * 200_000}, "-t", "damaged:1")
    image = builds.store.image("damaged:1")
    recipe = builds.store.recipe(image.layers[0].diff_id)
    kept = recipe.read_bytes()
    try:
        recipe.write_bytes(kept[: len(kept) // 2])
        found = lint(builds, "damaged:1", code=4)
    finally:
        recipe.write_bytes(kept)
    assert any("layer 1" in note for note in found["notes"])
    assert "BB1003" in {each["code"] for each in found["findings"]}


def test_the_site_of_a_file(builds: Builds, tmp_path: Path) -> None:
    site = tmp_path / "site.json"
    site.write_bytes(codec.to_json(make_site(architecture="aarch64", gpu_drivers=(make_driver(),))))
    said = builds.bareboat("image", "lint", "--json", "--for", site, "base", code=1)
    assert "BB1307" in {each["code"] for each in json.loads(said.out)["findings"]}
    login = json.loads(codec.to_json(make_site()))
    both = json.dumps({"login": login, "compute": json.loads(site.read_bytes())})
    site.write_text(both)
    said = builds.bareboat("image", "lint", "--json", "--for", site, "base", code=1)
    assert "BB1307" in {each["code"] for each in json.loads(said.out)["findings"]}
    kept = builds.store.own / "sites" / "slurm-gpu.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(json.loads(both)["compute"]))
    said = builds.bareboat("image", "lint", "--json", "--for", "slurm-gpu", "base", code=1)
    assert "BB1307" in {each["code"] for each in json.loads(said.out)["findings"]}


def test_this_machine_is_the_default_site_of_an_image(builds: Builds) -> None:
    said = builds.bareboat("image", "lint", "base", "--fail-on", "never")
    assert "compared with" in said.err


# Dockerfiles.


def test_exit_codes(builds: Builds, dockerfile: Path) -> None:
    own = ("image", "lint", "--no-hadolint", dockerfile)
    assert "BB1101" in builds.bareboat(*own, code=1).out
    builds.bareboat(*own, "--fail-on", "info", code=1)
    builds.bareboat(*own, "--fail-on", "error")
    builds.bareboat(*own, "--fail-on", "never")
    builds.bareboat(*own, "--ignore", "BB1101,bb1006")
    dockerfile.write_text("FROM debian:12.7\nFRMO x\n")
    assert "unknown instruction" in builds.bareboat(*own, code=2).err


def test_hadolint(builds: Builds, dockerfile: Path) -> None:
    tool("hadolint")
    found = lint(builds, dockerfile, code=1)["findings"]
    others = {each["code"] for each in found if each["source"] == "hadolint"}
    assert {"DL3006", "DL3008", "DL3015"} <= others
    assert "DL3015" not in codes(builds, dockerfile, "--ignore", "DL3015")
    assert not any(code.startswith("DL") for code in codes(builds, dockerfile, "--no-hadolint"))


def test_hadolint_and_heredocs(builds: Builds, dockerfile: Path) -> None:
    """hadolint cannot parse an instruction that follows a heredoc at once."""
    program = tool("hadolint")
    text = "FROM debian:12.7\nRUN <<E\ntrue\nE\nRUN <<E\nsudo a\nE\nRUN cd /a\n"
    dockerfile.write_text(text)
    (unread,) = hadolint.run(program, text)
    assert (unread.code, unread.severity.value) == ("DL1000", "info")
    found = lint(builds, dockerfile, code=1)["findings"]
    assert {(each["code"], each["line"]) for each in found} >= {("DL3004", 5), ("DL3003", 8)}


def test_a_hadolint_that_is_missing_or_broken(dockerfile: Path, tmp_path: Path) -> None:
    """On PATH, for a Python whose own directory has none."""
    broken = tmp_path / "hadolint"
    for script in ("#!/bin/sh\necho no\n", "#!/bin/sh\necho '[{}]'\n", "#!/bin/sh\necho '{\"a\": 1}'\n"):
        executable(broken, script)
        with pytest.raises(ToolError):
            hadolint.run(str(broken), "FROM a\n")
    said = subprocess.run(
        [sys.executable, "-c",
         "import sys, sysconfig\n"
         "from bareboat_images.lint import hadolint\n"
         "sys.executable = '/nowhere/python'\n"
         "sysconfig.get_path = lambda _name: '/nowhere'\n"
         "from bareboat.cli.main import main\n"
         "sys.exit(main(sys.argv[1:]))",
         "image", "lint", str(dockerfile), "--fail-on", "never"],
        env=os.environ | {
            "PATH": path_without("hadolint"), "BAREBOAT_STORE": str(tmp_path / "store"),
            "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
        },
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert "hadolint is not installed" in said.stderr
    assert "BB1101" in said.stdout


def test_a_directory_stands_for_its_dockerfile(builds: Builds, dockerfile: Path) -> None:
    assert "BB1101" in codes(builds, dockerfile.parent)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("Dockerfile", "--ignore", "BB9999"), "no rule"),
        (("Dockerfile", "--ignore", ","), "empty"),
        (("Dockerfile", "--for", "nowhere.json"), "no facts about the site"),
        (("Dockerfile", "--for", "Dockerfile"), "not valid JSON"),
        (("Dockerfile", "--for", "wrong.json"), "wrong type"),
        (("missing/Dockerfile",), "not found"),
        (("empty",), "directory without a Dockerfile"),
        (("image.def",), "the header has no From"),
        (("Dockerfile", "--json", "--format", "sarif"), "cannot be used together"),
    ],
)
def test_mistakes(builds: Builds, dockerfile: Path, arguments: tuple[str, ...], said: str) -> None:
    (dockerfile.parent / "empty").mkdir()
    (dockerfile.parent / "image.def").write_text("Bootstrap: docker\n")
    (dockerfile.parent / "wrong.json").write_text("{}")
    found = builds.bareboat("image", "lint", "--no-hadolint", *arguments, code=2, cwd=dockerfile.parent)
    assert said in found.err
    assert "try: " in found.err


# SARIF.


def check_sarif(document: dict[str, Any]) -> None:
    """What readers of SARIF 2.1.0 need (sections 3.13 to 3.52), where a wrong value hides a finding."""
    assert document["version"] == "2.1.0"
    for run in document["runs"]:
        driver = run["tool"]["driver"]
        assert "semanticVersion" in driver or driver["informationUri"].startswith("https://")
        rules = [rule["id"] for rule in driver["rules"]]
        assert len(set(rules)) == len(rules)
        for rule in driver["rules"]:
            assert "helpUri" in rule or rule["shortDescription"]["text"]
        for result in run["results"]:
            assert rules[result["ruleIndex"]] == result["ruleId"]
            assert result["level"] in ("note", "warning", "error")
            assert result["message"]["text"]
            for location in result["locations"]:
                place = location.get("physicalLocation", {})
                assert " " not in place.get("artifactLocation", {}).get("uri", "")
                region = place.get("region", {"startLine": 1, "endLine": 1})
                assert 1 <= region["startLine"] <= region["endLine"]


def test_sarif_of_a_dockerfile(builds: Builds, dockerfile: Path) -> None:
    said = builds.bareboat("image", "lint", "--format", "sarif", dockerfile, code=1)
    document = json.loads(said.out)
    check_sarif(document)
    found = {result["ruleId"] for run in document["runs"] for result in run["results"]}
    assert "BB1101" in found
    output = dockerfile.with_name("out.sarif")
    said = builds.bareboat("image", "lint", "--format", "sarif", "-o", output, dockerfile, code=1)
    assert json.loads(output.read_text()) == document
    assert "warning" in said.out


def test_sarif_of_an_image(builds: Builds) -> None:
    builds.build("FROM base\nCOPY a /tmp/a%20b\n", {"a": b"x" * 200_000}, "-t", "sarif:1")
    document = json.loads(
        builds.bareboat(
            "image", "lint", "--format", "sarif", "--for", "none", "sarif:1", "--fail-on", "never"
        ).out
    )
    check_sarif(document)
    (result,) = [each for each in document["runs"][0]["results"] if each["ruleId"] == "BB1003"]
    assert result["properties"]["bytes"] == 200_000
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].startswith("tmp/")


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[int]:
    """An HTTP server of a directory; its port."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
