"""The job script, run: quoting, exit codes, standard input, signals, and what must be there."""

import os
import re
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders import environment_of, make_image, make_job, make_rootfs, make_site
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tools import completed_bytes, executable, tool
from watch import kill, processes_with, wait_until

from bareboat import render
from bareboat.model import EngineFacts, Mount, Plan, Requirement, Topology
from bareboat.plan import plan
from bareboat_base.errors import UsageError
from bareboat_base.execute import processes_of

PRINTF = tool("printf")
ENV = tool("env")


def native(command: Sequence[str], **changes: Any) -> Plan:
    """The plan of one process on bare metal."""
    facts: dict[str, Any] = {
        "name": "job", "command": tuple(command), "workdir": "/", "topology": Topology(),
        "engine": "native", "environment": {},
    }  # fmt: skip
    return plan(make_job(**(facts | changes)), None, None, make_site(engines=()))


@contextmanager
def written(made: Plan) -> Iterator[str]:
    with tempfile.NamedTemporaryFile(suffix=".sh") as file:
        file.write(os.fsencode(render.script(made)))
        file.flush()
        yield file.name


def run(
    made: Plan, *arguments: str, stdin: bytes = b"", environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    with written(made) as script:
        return completed_bytes(
            ["bash", script, *arguments],
            input=stdin,
            env={"PATH": os.environ["PATH"], **(environment or {})},
            timeout=60,
        )


def split(output: bytes) -> list[bytes]:
    assert output.endswith(b"\0")
    return output[:-1].split(b"\0")


# quoting

HOSTILE = [
    "", " ", "\n", "\r\n", "\t", "'", '"', "\\", "\\\n", "$HOME", "$(exit 9)", "`exit 9`", "${x:-y}", "$$",
    "!", "!!", "#", "# x", "*", "?", "[a]", "~", "~root", "{a,b}", ">x", "<x", "|", "&", "&&", ";", "-", "--",
    "-x", "--help", "-n", "a=b", "=", "==", "%s", "%n", "\x01", "\x7f", "\x1b[31m", "é", "日本", "\u2028",
    "\ufeff", "😀", "\udcff", "a\udc80b", "\udcc3", "'\\''", "\n--\n", "EOF", "\\0", "{title}", "{0}",
]  # fmt: skip
WORDS = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12),
    st.text(st.sampled_from("'\"\\$`!\n -=#&;|<>(){}[]*?~\t\r%"), max_size=8),
    st.binary(max_size=8).map(lambda data: os.fsdecode(data.replace(b"\0", b""))),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=12))
@example(HOSTILE)
@example(["".join(HOSTILE)])
@example([word + "\n" for word in HOSTILE])
def test_every_word_of_the_command_arrives_as_it_was_written(words: list[str]) -> None:
    done = run(native([PRINTF, r"%s\0", *words]))
    assert (done.returncode, done.stderr) == (0, b"")
    assert split(done.stdout) == [os.fsencode(word) for word in words]


NAMES = st.from_regex(r"V_[A-Za-z0-9_]{0,6}", fullmatch=True)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(NAMES, WORDS, min_size=1, max_size=8))
@example({f"V_{k}": word for k, word in enumerate(HOSTILE)})
def test_every_variable_arrives_as_it_was_written_and_nothing_else_does(values: dict[str, str]) -> None:
    done = run(native([ENV, "-0"], environment=values), environment={"LEAK": "1", "V_LEAK": "1"})
    assert (done.returncode, done.stderr) == (0, b"")
    found = dict(entry.split(b"=", 1) for entry in split(done.stdout))
    assert {name.decode(): value for name, value in found.items() if name.startswith(b"V_")} == {
        name: os.fsencode(value) for name, value in values.items()
    }
    assert b"LEAK" not in found


def test_a_program_with_an_equals_sign_in_its_name_is_a_program(tmp_path: Path) -> None:
    program = tmp_path / "lr=0.1" / "train.sh"
    executable(program, '#!/bin/sh\nprintf "%s\\0" "$0" "$@"\n')
    done = run(native([str(program), "a b", "-c"]))
    assert split(done.stdout) == [os.fsencode(program), b"a b", b"-c"]


@pytest.mark.parametrize("folder", ["with space", "it's", "$HOME", "new\nline", "-x", "é", "a=b"])
def test_the_command_runs_in_its_working_folder_whatever_the_name(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    done = run(native(["/bin/pwd"], workdir=str(tmp_path / folder)))
    assert done.stdout == os.fsencode(tmp_path / folder) + b"\n"


@pytest.mark.parametrize(
    "value", ["plain", "with space", "it's", '"', "$HOME `x` $(x)", "new\nline", "*", "-"]
)
def test_a_value_known_only_when_the_job_runs_is_one_word(tmp_path: Path, value: str) -> None:
    for made in (native([ENV, "-0"]), contained([ENV, "-0"], tmp_path)):
        done = run(made, environment={"BAREBOAT_METER_DIR": value, "BAREBOAT_GATE": ""})
        seen = split(done.stdout)
        if made.engine == "native":
            assert b"BAREBOAT_METER_DIR=" + os.fsencode(value) in seen
        else:
            at = seen.index(b"--remount-ro")
            place = b"/run/bareboat/BAREBOAT_METER_DIR"
            assert seen[at - 3 : at] == [b"--bind", os.fsencode(value), place]
        assert not [word for word in seen if b"BAREBOAT_GATE" in word or b"BAREBOAT_RUN_DIR" in word]


PRINTER = "a 'bwrap"


def contained(command: Sequence[str], folder: Path, **changes: Any) -> Plan:
    """The plan of one process under a bubblewrap that prints the words it is given, each ended by NUL, and
    then what waits in the descriptor."""
    bwrap = folder / PRINTER
    text = 'printf \'%s\\0\' "$@"\nwhile [ "$1" != --args ]; do shift; done; exec /bin/cat <&"$2"\n'
    executable(bwrap, f"#!/bin/bash\n{text}")
    facts = EngineFacts(
        name="bubblewrap", path=str(bwrap), version="0.11.0", origin="test", works=True, overlay=True
    )
    image = make_image()
    job = make_job(**({"command": tuple(command), "topology": Topology()} | changes))
    made = plan(job, image, make_rootfs(image), make_site(engines=(facts,)))
    return msgspec.structs.replace(made, requirements=())


PATHS = WORDS.map(lambda word: "/-" + word.replace("/", ""))


@settings(max_examples=40, deadline=None)
@given(
    workdir=PATHS,
    mounts=st.lists(st.tuples(PATHS, PATHS, st.booleans()), max_size=3, unique_by=lambda mount: mount[1]),
    environment=st.dictionaries(NAMES, WORDS, max_size=3),
    words=st.lists(WORDS, max_size=6),
)
def test_a_container_engine_is_given_exactly_the_plans_words(
    workdir: str, mounts: list[tuple[str, str, bool]], environment: dict[str, str], words: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = contained(
            ["python", *words],
            Path(folder),
            workdir=workdir,
            mounts=tuple(Mount(source=s, target=t, writable=w) for s, t, w in mounts),
            environment=environment,
        )
        done = run(made, "the mark")
    assert (done.returncode, done.stderr) == (0, b"")
    own = made.command.argv[made.command.argv.index(f"{folder}/{PRINTER}") + 1 :]
    fixed = [os.fsencode(word) for word in own if isinstance(word, str)]
    fixed_at = fixed.index(b"--chdir")
    mark = [b"--setenv", b"BAREBOAT_RUN", b"the mark"]
    given = [
        os.fsencode(word) for each in environment_of(made.command).items() for word in ("--setenv", *each)
    ]
    printed = split(done.stdout)
    assert printed.pop(printed.index(b"--args") + 1).isdigit()
    assert printed == [*fixed[:fixed_at], *mark, *fixed[fixed_at:], *given]


@pytest.mark.parametrize(
    "name",
    ["$(touch {})", "`touch {}`", "'; touch {}; '", '"; touch {}; "', "\\", "{title}", "%s", "} touch {}",
     "x${{IFS}}y", "é ü"],
)  # fmt: skip
def test_a_hostile_name_of_a_job_stays_a_name(tmp_path: Path, name: str) -> None:
    touched = tmp_path / "touched"
    made = native([ENV, "-0"], name=name.replace("{}", str(touched)))
    script = render.script(made)
    assert script.splitlines()[0] == "#!/usr/bin/env bash"
    head = script.split("\nset -u\n")[0]
    assert all(line.startswith("#") for line in head.split("\n"))
    done = run(made)
    assert (done.returncode, done.stderr) == (0, b"")
    assert not touched.exists()
    marks = [entry for entry in split(done.stdout) if entry.startswith(b"BAREBOAT_RUN=")]
    assert len(marks) == 1
    assert re.fullmatch(rb"BAREBOAT_RUN=[^\s$`'\"/]*-[0-9]+", marks[0])


@pytest.mark.parametrize(
    "name", ["two\nlines", "\ntouch x\n", "\r touch x", "\u2028touch", "", "\udcff", "}\ntouch x"]
)
def test_a_name_that_no_line_can_hold_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="name is "):
        native([ENV, "-0"], name=name)


# exit codes, standard input, requirements


def test_what_is_missing_is_told_with_the_remedy_and_nothing_is_run(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    made = native([tool("touch"), str(touched)])
    missing = Requirement(path=f"{tmp_path}/it's $gone", what="a 'layer'", remedy="get `it` \\n again")
    made = msgspec.structs.replace(made, requirements=(*made.requirements, missing))
    done = run(made)
    assert done.returncode == 3
    assert done.stderr.decode() == (
        f"bareboat: a 'layer' does not exist: {tmp_path}/it's $gone\n  try: get `it` \\n again\n"
    )
    assert not touched.exists()


# the end of a run


@contextmanager
def started(made: Plan, mark: str = "") -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The script, started, and its mark. Whatever happens in the test, nothing of it is left."""
    mark = mark or f"test-{uuid.uuid4()}"
    with written(made) as script:
        process = subprocess.Popen(
            ["bash", script, mark], env={"PATH": os.environ["PATH"]}, start_new_session=True
        )
        try:
            yield process, mark
        finally:
            kill(processes_with(mark))
            process.wait()


#: A command with a child of its own, and a grandchild in a session of its own.
TREE = f"sleep 301 & {tool('setsid')} {tool('sh')} -c 'sleep 302; :' & exec sleep 303"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_a_signal_to_the_script_ends_the_whole_tree(number: signal.Signals, code: int) -> None:
    with started(native(["/bin/sh", "-c", TREE])) as (process, mark):
        assert wait_until(lambda: len(list(processes_of(mark))) == 4)
        assert len({os.getsid(pid) for pid in processes_of(mark)}) == 2
        process.send_signal(number)
        assert process.wait(timeout=30) == code
        assert processes_with(mark) == []


# ranks


SAY = r"""
for rank in 0 1 2; do
  echo "out of $rank" > "$BAREBOAT_RUN_DIR/logs/$rank.out"
  echo "err of $rank" > "$BAREBOAT_RUN_DIR/logs/$rank.err"
done
"""


def ranks(end: str) -> Plan:
    """A command that leaves behind what torchrun's ranks would."""
    made = native(["/bin/sh", "-c", f'echo "$BAREBOAT_RUN_DIR"\n{end}'])
    job = msgspec.structs.replace(made.job, topology=Topology(ranks_per_node=3))
    return msgspec.structs.replace(made, job=job, keeps_output=True)


def test_the_first_rank_that_failed_gives_the_exit_code_and_its_last_words() -> None:
    done = run(ranks(SAY + 'printf "2 0\\n1 7\\n0 143\\n" > "$BAREBOAT_RUN_DIR/exits.0"; exit 1'))
    assert done.returncode == 7
    assert done.stderr.decode().splitlines() == [
        *(f"[rank {rank}] err of {rank}" for rank in range(3)),
        "bareboat: rank 1 ended first, with exit code 7; its last output:",
        "  out of 1",
        "  err of 1",
    ]


def test_a_run_that_succeeded_says_nothing_of_its_ranks() -> None:
    done = run(ranks('printf "0 0\\n1 0\\n" > "$BAREBOAT_RUN_DIR/exits.0"'))
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_folder_of_the_ranks_is_removed_unless_it_was_given(tmp_path: Path) -> None:
    made = ranks("exit 1")
    place = {"TMPDIR": str(tmp_path)}
    own = Path(os.fsdecode(run(made, environment=place).stdout.strip()))
    assert own.parent.parent == tmp_path
    assert not own.parent.exists()
    (tmp_path / "a given").mkdir()
    done = run(
        made,
        environment={
            "BAREBOAT_CONTROL": str(tmp_path),
            "BAREBOAT_RUN_DIR": str(tmp_path / "a given"),
            **place,
        },
    )
    assert os.fsdecode(done.stdout.strip()) == str(tmp_path / "a given")
    assert (tmp_path / "a given/logs").is_dir()
