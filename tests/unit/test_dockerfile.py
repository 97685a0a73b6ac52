"""The grammar of Dockerfiles: logical lines, instructions, stages."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bareboat_images.recipe import instructions, lines, mounts, stages, words
from bareboat_images.recipe.faults import RecipeError
from bareboat_images.recipe.instructions import Instruction


def parsed(text: str) -> list[Instruction]:
    found = lines.read(text)
    return [instructions.parse(line, found.escape) for line in found.lines]


def only(text: str) -> Instruction:
    (found,) = parsed(text)
    return found


def recipe(text: str, **given: str) -> stages.Recipe:
    return stages.read(text, given=given, builtin={"TARGETARCH": "amd64"})


def closures(text: str, **given: str) -> list[list[stages.Stage]]:
    found = recipe(text, **given)
    return [list(found.closure(stage)) for stage in found.stages]


def refused(text: str, **given: str) -> RecipeError:
    with pytest.raises(RecipeError) as caught:
        closures(text, **given)
    assert caught.value.remedy
    assert f"Dockerfile:{caught.value.line}" in caught.value.context
    return caught.value


# Lines.


def test_continuations_join_without_their_comments_and_empty_lines() -> None:
    found = lines.read("RUN a \\\n  # a comment\n\n  b \\  \n && c\nRUN d\n")
    assert [(each.rest, each.number, each.last) for each in found.lines] == [
        ("a   b  && c", 1, 5),
        ("d", 6, 6),
    ]


def test_two_escapes_at_the_end_are_no_continuation() -> None:
    assert [each.rest for each in lines.read("RUN a\\\\\nRUN b").lines] == ["a\\\\", "b"]


def test_directives_hold_only_at_the_top() -> None:
    found = lines.read("# syntax=docker/dockerfile:1\n# ESCAPE = `\nFROM a\nRUN b `\n c\\\nRUN d")
    assert found.escape == "`"
    assert [each.rest for each in found.lines] == ["a", "b  c\\", "d"]
    assert lines.read("\n# escape=`\nFROM a").escape == "\\"
    assert lines.read("# a comment\n# escape=`\nFROM a").escape == "\\"


def test_a_byte_order_mark_and_carriage_returns_are_ignored() -> None:
    assert only("\ufeffRUN a \\\r\n b\r\n").args == ("a  b",)


# Heredocs.


def test_a_heredoc_ends_at_its_own_line_only() -> None:
    found = only("RUN <<EOF\na\n # no comment \\\n EOF\nEOF\n")
    (content,) = found.heredocs
    assert content.data == "a\n # no comment \\\n EOF\n"
    assert content.expands
    assert found.last == 5


def test_a_heredoc_with_a_dash_loses_its_tabs() -> None:
    (content,) = only("COPY <<-'EOF' /a\n\t\tx\n\t y\n\tEOF\n").heredocs
    assert content.data == "x\n y\n"
    assert not content.expands


def test_what_only_looks_like_a_heredoc_is_none() -> None:
    assert only("RUN echo '<<EOF'").heredocs == ()
    assert only("RUN cat <<< word").heredocs == ()
    assert only('RUN ["cat", "<<EOF"]').heredocs == ()
    assert only("ENV A=<<EOF").heredocs == ()


# Instructions.


@pytest.mark.parametrize(
    ("text", "args", "is_json"),
    [
        ("RUN a  b", ("a  b",), False),
        ('RUN ["a", "b c"]', ("a", "b c"), True),
        ("RUN ['a']", ("['a']",), False),
        ("RUN [ -f /a ] && b", ("[ -f /a ] && b",), False),
        ("CMD", (), False),
        ("CMD []", (), True),
        ("ENTRYPOINT top -b", ("top -b",), False),
        ('SHELL ["/bin/bash", "-c"]', ("/bin/bash", "-c"), True),
        ('COPY ["a", "b c", "d"]', ("a", "b c", "d"), True),
        ('COPY ["a b", "c"]', ("a b", "c"), True),
        ("EXPOSE 80/tcp 443", ("80/tcp", "443"), False),
        ('VOLUME ["/a"]', ("/a",), True),
        ("WORKDIR /a b", ("/a b",), False),
        ("MAINTAINER A <a@b>", ("A <a@b>",), False),
    ],
)
def test_forms(text: str, args: tuple[str, ...], is_json: bool) -> None:
    found = only(text)
    assert (found.args, found.is_json) == (args, is_json)


def test_names_and_values() -> None:
    assert only("ENV A=1 B='x y' C=a\\ b").pairs == (("A", "1"), ("B", "'x y'"), ("C", "a\\ b"))
    assert only("ENV A  some words = here").pairs == (("A", "some words = here"),)
    assert only('LABEL "a b"="c d" e=f').pairs == (('"a b"', '"c d"'), ("e", "f"))
    assert only("ARG A B=1").pairs == (("A", None), ("B", "1"))


def test_flags_come_before_the_rest() -> None:
    found = only('COPY --from=a --chown=1:2 --link --exclude=x --exclude="y z" s --d')
    assert found.flag("from") == "a"
    assert found.switch("link")
    assert found.all("exclude") == ("x", "y z")
    assert found.args == ("s", "--d")


@pytest.mark.parametrize(
    ("text", "said", "remedy"),
    [
        ("FORM a", "unknown instruction 'FORM'", "FROM"),
        ("COPY --fron=a b c", "unknown flag --fron", "--from"),
        ("COPY --chown a b", "--chown has no value", "--chown="),
        ("COPY --link=maybe a b", "--link is 'maybe'", "--link"),
        ("COPY --from=a --from=b c d", "twice", ""),
        ("COPY --from=$X a b", "does not take variables", "FROM $NAME AS"),
        ("COPY a", "a source and a destination", ""),
        ("RUN", "no argument", ""),
        ("RUN []", "empty", ""),
        ("RUN --security=insecure a", "--security is not supported", "without privileges"),
        ("RUN --mount=type=image,target=/a b", "type 'image'", "bind"),
        ("RUN --mount=target=/a,sauce=b c", "'sauce' is not a key", "source"),
        ("RUN --mount=type=cache b", "no target", ""),
        ("RUN --mount=type=secret b", "no id", ""),
        ("RUN --mount=type=cache,target=/a,sharing=often b", "sharing", "locked"),
        ("RUN --mount=type=cache,target=/a,mode=9 b", "not octal", ""),
        ("RUN --mount=type=tmpfs,target=/a,size=big b", "not a size", ""),
        ('CMD ["a", 1]', "only hold strings", ""),
        ("SHELL a", "JSON form", ""),
        ("ENV A", "no value", ""),
        ("ENV A=1 B", "no =", ""),
        ("ENV =1", "empty", ""),
        ("ARG 1a=b", "not a name", ""),
        ('VOLUME [""]', "empty", ""),
        ("ONBUILD", "not supported", ""),
        ("USER --x a", "no flags", ""),
        ("FROM a b", "IMAGE AS NAME", ""),
    ],
)
def test_a_wrong_instruction_is_refused_by_line(text: str, said: str, remedy: str) -> None:
    error = refused(f"FROM a\n\n{text}\n")
    assert error.line == 3
    assert said in error.message
    assert remedy in error.remedy


@pytest.mark.parametrize(
    ("text", "line", "said", "remedy"),
    [
        ("COPY a <<EOF\nls\nEOF", 2, "its destination is a heredoc", "COPY <<EOF /DIRECTORY/FILE"),
        ("COPY <<EOF\nls\nEOF", 2, "it requires a source and a destination", "COPY"),
        ("RUN cat <<EOF\nls\nEOF\nLS", 5, "unknown instruction 'LS'", "use one of"),
        ("# caf\udce9\nLABEL a=caf\udce9", 3, "not UTF-8", "iconv -f latin1"),
        ("ARG ${x}-y=1", 2, "'-y' is not a name", ""),
    ],
)
def test_what_is_easily_mistaken_is_explained(text: str, line: int, said: str, remedy: str) -> None:
    head = "ARG x\n" if text.startswith("ARG") else "FROM a\n"
    error = refused(head + text + "\nFROM a\n")
    assert (error.line, said in error.message, remedy in error.remedy) == (line, True, True), error


def test_the_name_of_an_argument_may_be_in_a_variable() -> None:
    """With an empty one nothing is declared, as in BuildKit."""
    found = recipe("ARG x=NAME\nARG ${x}=1\nARG ${y}=2\nFROM a:${NAME}\nARG ${z}\n", OTHER="1")
    assert found.stages[0].base == "a:1"
    assert found.arguments["NAME"] == "1"
    assert "" not in found.arguments
    assert found.unused == ()  # the last ARG may be its name


# Stages.

STAGES = """
ARG BASE=debian
ARG FULL=${BASE}:12
FROM ${FULL} AS Build
RUN a
FROM scratch AS second
COPY --from=build /a /a
FROM build
COPY --from=1 /a /b
RUN --mount=from=second,target=/c d
"""


def test_many_stages_take_no_longer_for_their_number() -> None:
    """As a list that is searched for each stage, this takes 40 s."""
    count = 20_000
    rows = "".join(f"FROM s{number} AS s{number + 1}\nCOPY --from=s0 a b\n" for number in range(count))
    began = time.process_time()
    found = recipe("FROM scratch AS s0\n" + rows)
    assert len(found.closure(found.target(None))) == count + 1
    assert time.process_time() - began < 20


def test_stages_are_found_by_name_and_number() -> None:
    found = recipe(STAGES)
    assert [(each.base, each.name) for each in found.stages] == [
        ("debian:12", "build"), ("scratch", "second"), ("build", ""),
    ]  # fmt: skip
    assert [each.title for each in found.closure(found.stages[2])] == ["build", "second", "stage-2"]
    assert [each.title for each in found.closure(found.target("BUILD"))] == ["build"]
    assert found.target("1").title == "second"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("# escape=`\n# escape=`\nFROM a", 2, "twice"),
        ("# escape=x\nFROM a", 1, "escape character"),
        ("FROM a\nRUN <<E\nb", 2, "does not end"),
        ("FROM a\nRUN a\0b", 2, "NUL"),
        ('FROM a\nRUN [1, "<<a"]', 2, "only hold strings"),
        ("", 1, "no FROM"),
        ("# nothing\n", 1, "no FROM"),
        ("RUN a\nFROM b", 1, "before the first FROM"),
        ("ARG A\nFROM $A", 2, "empty"),
        ("FROM ${A", 1, "does not end"),
        ("FROM ${A:?give it}", 1, "give it"),
        ("FROM a AS 1b", 1, "not a name"),
        ("FROM a AS scratch", 1, "reserved"),
        # Circles.
        ("FROM a AS x\nCOPY --from=x a b", 2, "from itself"),
        ("FROM a AS x\nCOPY --from=0 a b", 2, "from itself"),
        ("FROM a AS x\nRUN --mount=from=x,target=/m b", 2, "from itself"),
        ("FROM a AS x\nCOPY --from=y a b\nFROM a AS y\nCOPY --from=x a b", 3, "x needs y needs x"),
        ("FROM a AS x\nCOPY --from=z a b\nFROM x AS y\nFROM y AS z", 3, "x needs z needs y needs x"),
        ("FROM a AS x\nCOPY --from=3 a b", 2, "3 is not one of the 1 stages"),
    ],
)
def test_wrong_lines_and_stages_are_refused(text: str, line: int, said: str) -> None:
    error = refused(text)
    assert error.line == line
    assert said in error.message


def test_an_earlier_stage_of_a_name_comes_first() -> None:
    found = recipe("FROM a AS x\nFROM a AS y\nCOPY --from=x b c\nFROM d AS x\nCOPY --from=x b c\n")
    assert [stage.number for stage in found.closure(found.stages[1])] == [0, 1]
    assert [stage.number for stage in found.closure(found.stages[2])] == [0, 2]


def test_an_unknown_target_names_the_stages() -> None:
    with pytest.raises(RecipeError) as caught:
        recipe(STAGES).target("bild")
    assert "build, second, 2" in caught.value.message
    assert caught.value.remedy == "--target build"


def test_values_of_mounts_may_be_in_variables() -> None:
    """As in BuildKit's own tests; what a variable contains is one value."""
    values = {"KIND": "cache", "AT": "/a,from=rootfs:secret", "HOW": "locked", "ON": "false", "MODE": "0700"}
    text = "RUN --mount=type=$KIND,target=$AT,sharing=$HOW,ro=$ON,mode=$MODE --mount=from=x,target=$AT a"
    assert recipe(f"FROM b AS x\nFROM b\n{text}\n").stages[1].steps
    step = only(text)
    assert stages.sources(step) == ("x",)
    first, second = mounts.read(step, lambda text: values.get(text.removeprefix("$"), text))
    assert (first.kind, first.target, first.stage) == ("cache", values["AT"], "")
    assert (first.sharing, first.writable, first.mode) == ("locked", True, 0o700)
    assert (second.stage, second.target) == ("x", values["AT"])


def test_mounts_are_read() -> None:
    found = mounts.read(
        only(
            "RUN --mount=type=cache,target=/c,sharing=locked,mode=0700 --mount=type=secret,id=k "
            "--mount=type=bind,source=s,target=t,rw --mount=type=tmpfs,target=/x,size=1m "
            '--mount=type=secret,id=e,env=TOKEN --mount=type=bind,target="/q" a'
        ),
        lambda text: text,
    )
    assert [(each.kind, each.target) for each in found] == [
        ("cache", "/c"), ("secret", "/run/secrets/k"), ("bind", "t"), ("tmpfs", "/x"), ("secret", ""),
        ("bind", "/q"),
    ]  # fmt: skip
    assert (found[0].id, found[0].sharing, found[0].mode, found[0].writable) == ("/c", "locked", 0o700, True)
    assert found[2].writable
    assert not found[5].writable
    assert found[3].size_bytes == 1 << 20
    assert found[4].variable == "TOKEN"


# Properties.


@given(
    st.lists(st.text(st.characters(blacklist_characters="\r\n\0", blacklist_categories=("Cs",)), min_size=1))
)
def test_json_words_come_back_unchanged(given_words: list[str]) -> None:
    text = json.dumps(given_words)
    assert words.json_list(text) == tuple(given_words)


@given(st.lists(st.text("ab \"'\\$", min_size=1), min_size=1))
def test_quoted_words_come_back_unchanged(given_words: list[str]) -> None:
    quoted = ["'" + each.replace("'", "'\\''") + "'" for each in given_words]
    split = words.split_words(" ".join(quoted), "\\")
    assert [words.unquoted(each, "\\") for each in split] == given_words


@given(st.lists(st.text("abc #\t", min_size=1).filter(str.strip), min_size=1, max_size=8))
def test_a_line_may_be_broken_anywhere_between_words(pieces: list[str]) -> None:
    plain = [each for each in pieces if not each.lstrip().startswith("#")]
    broken = "RUN x" + "".join(f" \\\n{each}" for each in pieces)
    assert only(broken).args == (("x " + " ".join(plain)).strip() if plain else "x",)


def test_arguments_of_arguments_are_limited_together() -> None:
    """Each value may have a megabyte, and a Dockerfile a hundred thousand lines."""
    lines = ["ARG A=" + "x" * 1000, "ARG B=" + "$A" * 1000, *(f"ARG C{number}=$B" for number in range(20))]
    assert "16 megabytes" in refused("\n".join([*lines, "FROM scratch"])).message
    recipe("\n".join([*lines[:10], "FROM scratch"]))
