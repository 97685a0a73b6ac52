"""The table of docs/building.md: a test of test_build.py builds each row, or it is refused here by line."""

import json
from pathlib import Path

import pytest
from building import Builds
from contract import test_build

from bareboat_images.recipe import mounts, stages

PAGE = Path(__file__).parents[2] / "docs/building.md"
Row = tuple[str, str]

#: Row -> the case of test_build.SUPPORTED that shows it, or the test.
BUILT: dict[Row, str] = {
    ("file", "comments and continuations"): "a comment",
    ("file", "shell form"): "shell form",
    ("file", "JSON form"): "exec form",
    ("file", "heredocs"): "heredoc",
    ("file", "variables"): "modifiers",
    ("file", ".dockerignore"): "test_ignored_files_are_not_in_the_context",
    ("file", "`# syntax`, `# escape`, `# check`"): "test_directives",
    ("FROM", "`AS NAME`"): "stages",
    ("FROM", "`scratch`"): "stages",
    ("FROM", "`--platform`"): "FROM --platform",
    ("ARG", "before FROM"): "test_build_arguments",
    ("ARG", "after FROM"): "ARG is hidden by ENV",
    ("ARG", "`TARGETPLATFORM`, `BUILDARCH` and the like"): "TARGETARCH",
    ("ARG", "`http_proxy` and the like"): "test_build_arguments",
    ("ARG", "`SOURCE_DATE_EPOCH`"): "test_an_arg_has_the_time_of_the_environment",
    ("RUN", "`--mount=type=bind`"): "a mount with rw",
    ("RUN", "`--mount=type=cache`"): "caches of one id",
    ("RUN", "`--mount=type=tmpfs`"): "a tmpfs",
    ("RUN", "`--mount=type=secret`"): "test_secrets_leave_no_trace",
    ("RUN", "`--network=default`, `--network=host`"): "the host's network",
    ("RUN", "`--network=none`"): "test_without_a_network_nothing_is_reached",
    ("RUN", "`--security=sandbox`"): "the host's network",
    ("COPY", "files, directories, patterns"): "COPY patterns",
    ("COPY", "`--from`"): "later stages",
    ("COPY", "`--chown`"): "test_owners_modes_and_whiteouts_are_in_the_layer",
    ("COPY", "`--chmod`"): "COPY --chmod by letters",
    ("COPY", "`--link`"): "COPY --link",
    ("COPY", "`--exclude`"): "COPY --exclude",
    ("ADD", "files and directories"): "ADD a file",
    ("ADD", "archives"): "test_add_unpacks_archives",
    ("ADD", "URLs"): "test_add_downloads",
    ("ADD", "`--checksum`"): "test_add_downloads",
    ("ADD", "`--chown`, `--chmod`, `--link`, `--exclude`"): "ADD with flags",
    ("WORKDIR", ""): "WORKDIR",
    ("USER", "name or number, with a group"): "USER with a group",
    ("SHELL", ""): "SHELL",
    ("ENV", "`NAME=VALUE`"): "ENV in RUN",
    ("ENV", "`NAME VALUE`"): "ENV without an equals sign",
    ("CMD", "shell and JSON form"): "test_the_configuration_is_that_of_the_instructions",
    ("ENTRYPOINT", "shell and JSON form"): "test_the_configuration_is_that_of_the_instructions",
    ("LABEL", ""): "test_the_configuration_is_that_of_the_instructions",
    ("MAINTAINER", ""): "test_the_configuration_is_that_of_the_instructions",
    ("EXPOSE", ""): "test_the_configuration_is_that_of_the_instructions",
    ("VOLUME", ""): "test_the_configuration_is_that_of_the_instructions",
    ("STOPSIGNAL", ""): "test_the_configuration_is_that_of_the_instructions",
    ("HEALTHCHECK", ""): "test_the_configuration_is_that_of_the_instructions",
}

#: Row -> an instruction that is refused, and what the error has.
REFUSED: dict[Row, tuple[str, str]] = {
    ("file", "another frontend's instructions"): ("INCLUDE other", "unknown instruction 'INCLUDE'"),
    ("FROM", "another platform"): ("FROM --platform=plan9/mips base", "not this machine's"),
    ("RUN", "`--security=insecure`"): ("RUN --security=insecure true", "--security is not supported"),
    ("file", "variables with `#`, `%`, `/`"): ("ENV V=${A%.*}", "the modifier '%' of ${A…} is not supported"),
    ("RUN", "`--mount=type=cache` with `from=`, `source=`, `sharing=private`"): (
        "RUN --mount=type=cache,target=/c,from=base true",
        "'from' is not a key of type=cache",
    ),
    ("COPY", "`--parents`"): ("COPY --parents d/a /x/", "--parents is not supported"),
    ("ADD", "`--unpack`"): ("ADD --unpack=false a.tar /x/", "--unpack is not supported"),
    ("RUN", "`--device`"): ("RUN --device=vendor.com/gpu true", "--device is not supported"),
    ("RUN", "`--network` of another name"): ("RUN --network=custom true", "--network='custom'"),
    ("RUN", "`--mount` of another type"): ("RUN --mount=type=image,target=/m true", "type 'image'"),
    ("RUN", "variables in `from=`"): ("RUN --mount=from=$S,target=/m true", "does not take variables"),
    ("COPY", "variables in `--from`"): ("COPY --from=$S a b", "does not take variables"),
    ("RUN", "`--mount=type=ssh`"): ("RUN --mount=type=ssh true", "type=ssh is not supported"),
    ("ADD", "git repositories"): ("ADD https://x.org/a.git /x", "ADD of a git repository is not supported"),
    ("ONBUILD", ""): ("ONBUILD COPY a b", "ONBUILD is not supported"),
    ("any", "unknown flags"): ("COPY --mode=1 a b", "unknown flag --mode"),
}


def rows() -> dict[Row, str]:
    """The rows of the table: instruction and form -> yes or no."""
    found: dict[Row, str] = {}
    text = PAGE.read_text().partition("\n## What is supported\n")[2].partition("\n## ")[0]
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 4 and cells[2] in ("yes", "no"):
            row = (cells[0], cells[1])
            assert row not in found, row
            found[row] = cells[2]
    return found


def test_each_row_of_the_table_has_a_test_and_each_test_a_row() -> None:
    expected = dict.fromkeys(BUILT, "yes") | dict.fromkeys(REFUSED, "no")
    assert rows() == expected | {("ARG", "`BUILDKIT_…`"): "no"}
    assert set(BUILT.values()) <= test_build.SUPPORTED.keys() | vars(test_build).keys() | globals().keys()


@pytest.mark.parametrize("row", REFUSED, ids=" ".join)
def test_what_is_not_supported_is_refused_by_line(builds: Builds, row: Row) -> None:
    line, said = REFUSED[row]
    answer = builds.build(f"FROM base\n\nARG S=base\n{line}\n", {"a": "1"}, code=2)
    assert said in answer.err
    assert "/Dockerfile:4" in answer.err
    assert "try: " in answer.err


def test_no_flag_is_left_out_of_the_table() -> None:
    """Every flag that the parser knows is in a row of its instruction."""
    from bareboat_images.recipe.instructions import FLAGS, INSTRUCTIONS

    named = {name: " ".join(form for row, form in rows() if row == name) for name in (*INSTRUCTIONS, "any")}
    for name, flags in FLAGS.items():
        for flag in flags:
            assert f"--{flag}" in named[name], (name, flag)
    assert all(any(row == name for row, _ in rows()) for name in INSTRUCTIONS)
    for kind in mounts._KEYS:
        assert f"--mount=type={kind}" in named["RUN"]


def test_directives() -> None:
    text = "# syntax=docker/dockerfile:1\n# escape=`\n# check=skip=all\nFROM a\nRUN b `\n c\\\n"
    found = stages.read(text, given={}, builtin={})
    assert found.stages[0].steps[0].args == ("b  c\\",)


def test_arguments_of_buildkit_are_not_ignored_silently(builds: Builds) -> None:
    flags = ("--build-arg", "BUILDKIT_INLINE_CACHE=1", "--json")
    said = json.loads(builds.build("FROM base\nLABEL a=b\n", {}, *flags).out)
    assert said["warnings"] == ["build argument BUILDKIT_INLINE_CACHE is not used: no ARG declares it"]


def test_a_health_check_is_not_dropped_silently(builds: Builds) -> None:
    said = json.loads(builds.build("FROM base\nHEALTHCHECK --timeout=2s CMD c\n", {}, "--json").out)
    assert ":2: " in said["warnings"][0]
