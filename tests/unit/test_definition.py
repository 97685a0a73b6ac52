"""Definition files of Apptainer: sections become instructions; what is not supported has its line."""

import pytest

from bareboat_images.recipe import definition
from bareboat_images.recipe.faults import RecipeError
from bareboat_images.recipe.instructions import Instruction
from bareboat_images.recipe.stages import Recipe

TEXT = """# a comment
Bootstrap: docker
From: debian:{{ RELEASE }}
Stage: build

%arguments
    RELEASE=12
%post
    make it

bootstrap: docker
Registry: quay.io
Namespace: team
From: base:1
%files from build
    /opt/a  /opt/
%files
    data/*.csv  /data
    run me
%environment
    # first
    export A=1 B="x y"
    C=$A:z
    export C;
    D='~$$'
%labels
    Author somebody $HOME "q"
%post -c /bin/bash
    [[ 1 ]]
%runscript
    exec "$@"
%help
    Read this.
%test
    true
"""


def read(text: str, **given: str) -> Recipe:
    return definition.read(text, given=given, name="a.def")


def steps(text: str) -> list[Instruction]:
    return list(read(f"Bootstrap: docker\nFrom: a\n{text}").stages[0].steps)


def refused(text: str, **given: str) -> RecipeError:
    with pytest.raises(RecipeError) as caught:
        read(text, **given)
    assert "a.def" in caught.value.context
    return caught.value


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Bootstrap: docker", True), ("\n# x\n  bootstrap : library\n", True), ("FROM a", False), ("", False),
        ("# Bootstrap: docker\nFROM a", False), ("ARG A\nBootstrap: docker", False),
    ],
)  # fmt: skip
def test_a_definition_file_is_recognized(text: str, found: bool) -> None:
    assert definition.is_definition(text) is found


def test_sections_become_instructions() -> None:
    recipe = read(TEXT, OTHER="1")
    build, last = recipe.stages
    assert (build.name, build.base) == ("build", "debian:12")
    assert last.base == "quay.io/team/base:1"
    assert [stage.number for stage in recipe.closure(last)] == [0, 1]
    assert recipe.unused == ("OTHER",)
    assert read(TEXT, RELEASE="13").stages[0].base == "debian:13"
    assert [step.name for step in last.steps] == [
        *["RUN"] * 4, *["ENV"] * 4, "LABEL", "COPY", "COPY", "COPY", "ENTRYPOINT", "COPY", "RUN",
    ]  # fmt: skip
    assert [step.line for step in last.steps][:6] == [16, 18, 19, 28, 22, 23]
    assert last.steps[3].heredocs[0].data.startswith("#!/bin/bash -e\n    [[ 1 ]]\n")
    assert last.steps[4].pairs == (("A", "1"), ("B", '"x y"'))
    assert [(step.pairs, step.switch("unexported")) for step in last.steps[5:8]] == [
        ((("C", "$A:z"),), True),
        ((("C", "$C"),), False),
        ((("D", "'~$$'"),), True),
    ]
    assert last.steps[8].pairs == (("Author", '"somebody \\$HOME \\"q\\""'),)


@pytest.mark.parametrize(
    ("line", "mount", "copy"),
    [
        ("a", "target=/run/bareboat-files/a,source=a", "mkdir -p /\ncp -fLr /run/bareboat-files/a /a\n"),
        ("./d/a /x/y", "source=d/a", "mkdir -p /x\n"),
        ("d/a /x/", "source=d/a", "mkdir -p /x/\n"),
        (". /x", "target=/run/bareboat-files/context,source=.", "cp -fLr /run/bareboat-files/context/. /x\n"),
        ("'a b/c*' '/x y'", "source=a b", "cp -fLr '/run/bareboat-files/a b'/c* '/x y'\n"),
    ],
)  # fmt: skip
def test_files_are_copied_as_by_cp(line: str, mount: str, copy: str) -> None:
    [step] = steps(f"%files\n  {line}\n")
    assert mount in (step.flag("mount") or "")
    assert copy in step.heredocs[0].data


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("Bootstrap: library\nFrom: a\n", 1, "'library' is not supported"),
        ("Bootstrap: docker\n", 1, "no From"),
        ("Bootstrap: docker\nFrom: a\nFrom: b\n", 3, "twice"),
        ("Bootstrap: docker\nForm: a\n", 2, "not a key"),
        ("Bootstrap: docker\nFrom: a\n\n%setup\n  rm -rf /\n", 4, "%setup is not supported"),
        ("Bootstrap: docker\nFrom: a\n%appinstall x\n", 3, "not supported"),
        ("Bootstrap: docker\nFrom: a\n%pots\n", 3, "unknown section %pots"),
        ("Bootstrap: docker\nFrom: a:{{ V }}\n", 2, "{{ V }} has no value"),
        ("Bootstrap: docker\nFrom: a\n%post\n  x\n  echo A=1 >> $APPTAINER_ENVIRONMENT\n", 5, "run time"),
        ("Bootstrap: docker\nFrom: a\n%post -x\n", 3, "not supported"),
        ("Bootstrap: docker\nFrom: a\n%environment\n\n  export A=$(date)\n", 5, "not NAME=VALUE"),
        ("Bootstrap: docker\nFrom: a\n%environment\n  . /etc/profile\n", 4, "not NAME=VALUE"),
        ("Bootstrap: docker\nFrom: a\n%environment\n  export A=1 && x\n", 4, "not NAME=VALUE"),
        *(
            (f"Bootstrap: docker\nFrom: a\n%environment\n  A={value}\n", 4, "only when the container runs")
            for value in (
                "~/x",
                "/a:~/b",
                "$$",
                "$HOME/x",
                '"${USER}"',
                "$1",
                "$SLURM_JOB_ID",
                "${TMPDIR:-/tmp}",
            )
        ),
        ("Bootstrap: docker\nFrom: a\n%files\n  /etc/passwd\n", 4, "not in the context"),
        ("Bootstrap: docker\nFrom: a\n%files\n  a b c\n", 4, "SOURCE or SOURCE TARGET"),
        ("Bootstrap: docker\nFrom: a\n%files\n  $HOME/a\n", 4, "SOURCE or SOURCE TARGET"),
        ("Bootstrap: docker\nFrom: a\n%files of b\n", 3, "%files"),
        ("Bootstrap: docker\nFrom: a\nStage: 1\n", 1, "not a name for a stage"),
        ("Bootstrap: oci\nNamespace: x\nFrom: a\n", 3, "require Bootstrap: docker"),
        ("Bootstrap: docker\nFrom: a\0\n", 2, "NUL"),
    ],
)
def test_what_is_not_supported_is_refused_by_line(text: str, line: int, said: str) -> None:
    error = refused(text)
    assert error.line == line
    assert said in error.message
    assert error.remedy
