"""Definition files of Apptainer, built and run; what the sections do is seen in the image."""

import json
import subprocess
from pathlib import Path

import pytest
from building import Builds
from tools import tool

TEXT = """Bootstrap: docker
From: base
Stage: build
%post
    mkdir /made && echo made > /made/it

Bootstrap: docker
From: {{ FROM }}
%arguments
    FROM=base
%files from build
    /made /opt/
%files
    data/*.csv /srv/
    data /new
    data /opt
    "a b" /srv/named
%environment
    WORDS="hello world"
    export GREETING="$WORDS"
    PATH=/opt/bin:$PATH
%labels
    Author me $HOME
%post
    test "$GREETING" = ""
    mkdir /opt/bin
    printf '#!/bin/sh\\necho $GREETING "$@"\\n' > /opt/bin/greet
    chmod 755 /opt/bin/greet
    false || true
%runscript
    exec greet "$@"
%startscript
    exec sleep 1000
%help
    Greets.
%test
    test "$(greet)" = "hello world"
"""
FILES: dict[str, bytes | str | None] = {
    "data/one.csv": "1", "data/two.csv": "2", "data/no.txt": "3", "data/link.csv": "-> one.csv", "a b": "4",
}  # fmt: skip


@pytest.fixture(scope="module")
def built(builds: Builds) -> str:
    builds.build(TEXT, FILES, "-t", "app:def")
    return "app:def"


def test_each_section_has_its_effect(builds: Builds, built: str) -> None:
    image = builds.store.image(built)
    config = builds.config(image)["config"]
    assert config["Entrypoint"] == ["/.singularity.d/runscript"]
    assert config["Labels"] == {"Author": "me $HOME"}
    assert {"GREETING=hello world"} <= set(config["Env"])
    assert next(each for each in config["Env"] if each.startswith("PATH=")).startswith("PATH=/opt/bin:/")
    script = (
        "greet again; cat /opt/made/it /srv/named /srv/link.csv; echo; cd /; ls srv new opt/data;"
        "test ! -L /srv/link.csv -a ! -e /run/bareboat-files && cat /.singularity.d/runscript.help"
    )
    said = builds.bareboat("run", "--image", built, "--", "sh", "-c", script).out
    assert said.split() == [
        "hello", "world", "again", "made", "41",
        "new:", "link.csv", "no.txt", "one.csv", "two.csv",
        "opt/data:", "link.csv", "no.txt", "one.csv", "two.csv",
        "srv:", "link.csv", "named", "one.csv", "two.csv", "Greets.",
    ]  # fmt: skip


def test_a_second_build_comes_from_the_cache(builds: Builds, built: str) -> None:
    again = json.loads(builds.build(TEXT, FILES, "--json").out)
    assert again["cached"] == again["steps"]
    assert again["digest"] == builds.store.image(built).digest
    changed = json.loads(builds.build(TEXT, FILES | {"data/no.txt": "changed"}, "--json").out)
    assert 0 < changed["cached"] < changed["steps"]


def test_apptainer_runs_the_script_and_the_help(builds: Builds, built: str, tmp_path: Path) -> None:
    apptainer = tool("apptainer")
    builds.bareboat("image", "save", built, f"rootfs:{tmp_path}/app")
    run = [apptainer, "run", "--userns", "--contain", "--cleanenv", str(tmp_path / "app"), "you"]
    said = subprocess.run(run, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (0, "hello world you\n"), said.stderr


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        ("%test\n    false\n", 1, "RUN exited with code 1"),
        ("%post\n    false\n    true\n", 1, "RUN exited with code 1"),
        ("%files\n    gone /x\n", 2, "gone"),
        ("%files\n    ../a /x\n", 2, ".."),
        ("%files\n    data/*.none /x\n", 1, "*.none"),
        ("%setup\n    touch /tmp/x\n", 2, "%setup is not supported"),
        ("%files from none\n    /a /x\n", 6, "none"),
    ],
)
def test_what_fails_names_its_line(builds: Builds, more: str, code: int, said: str) -> None:
    answer = builds.build(f"Bootstrap: docker\nFrom: base\n\n{more}", FILES, code=code)
    assert said in answer.err
    assert "/Dockerfile:" in answer.err
    assert "try: " in answer.err


def test_a_certificate_error_names_what_a_definition_file_can_do(builds: Builds) -> None:
    context = builds.context("")
    text = "Bootstrap: docker\nFrom: base\n%post\n    echo certificate verify failed; exit 1\n"
    (context / "app.def").write_text(text)
    said = builds.bareboat("image", "build", "-f", context / "app.def", context, code=1)
    assert "--ca-bundle" in said.err
