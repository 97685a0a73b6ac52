"""Pieces of the job script, run by bash: what they work out without starting a program for it."""

import os
import re
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from tools import completed, tool
from watch import wait_until

import bareboat
from bareboat import registry, render
from bareboat.render import library


def bash(text: str, *, stdin: bytes = b"", path: str = "/nonexistent") -> bytes:
    """What bash prints, by default without any program on PATH."""
    done = subprocess.run(
        [tool("bash"), "-uc", text], input=stdin, capture_output=True, env={"PATH": path}, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b""), done
    return done.stdout


PIECES = sorted(Path(bareboat.__file__).parents[1].glob("bareboat*/**/*.sh"))


def test_every_piece_is_good_bash_as_it_stands() -> None:
    """With its variables from elsewhere; that they exist is seen in the golden scripts."""
    for words in (["shellcheck"], ["shfmt", "--diff"]):
        done = completed([tool(words[0]), *words[1:], *PIECES])
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    heads = [path.read_text().split("\n\n")[0].splitlines() for path in PIECES]
    assert all(head[0].startswith("# shellcheck shell=bash") for head in heads)
    assert all(any(line.startswith("# Expects: ") for line in head) for head in heads)


def test_no_function_returns_without_a_status() -> None:
    """Called from a trap, it would have that of the command before the signal."""
    awk = re.compile(r"awk [^']*'[^']*'")
    bare = re.compile(r"\breturn *($|[;}|&])", re.MULTILINE)
    assert not [path.name for path in PIECES if bare.search(awk.sub("", path.read_text()))]


_LOST = """
wait() {
  waits=$((waits + 1)) interrupted=1
  [ "$waits" -gt 1 ] || return 143
  exec sleep 60
}
kill() { return 1; }
jobs() { echo 122; echo 123; }
waits=0 interrupted= child=123
await "$child"
echo "$?"
"""


def test_a_child_whose_end_bash_lost_is_not_waited_for() -> None:
    """bash takes it for running: `wait` would last as long as all other children."""
    text = (Path(render.__file__).parent / "runtime" / "common.sh").read_text()
    found = re.search(r"^await\(\) \{.*?^\}", text, re.DOTALL | re.MULTILINE)
    assert found is not None
    assert bash(found.group() + _LOST, path="/usr/bin:/bin") == b"143\n"


@pytest.mark.parametrize(("mark", "ends"), [("train-1", True), ("train-10", False), ("TRAIN-1", False)])
def test_a_process_with_a_lower_number_than_the_script_s_is_left_over_too(mark: str, *, ends: bool) -> None:
    """Numbers begin again at pid_max, 32768 on small machines."""
    left = subprocess.Popen(["sleep", "60"], env={"BAREBOAT_RUN": mark})
    try:
        # Popen returns before the kernel shows the new environment.
        assert wait_until(lambda: mark.encode() in Path(f"/proc/{left.pid}/environ").read_bytes())
        text = f"BAREBOAT_RUN=train-1 run_apart=\n{render.subject('processes')}\n"
        text += "end_run() { echo ended; }\nend_left"
        assert bash(text, path="/usr/bin:/bin") == (b"ended\n" if ends else b"")
    finally:
        left.kill()
        left.wait()


# -- the nodes' names ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "names", "found"),
    [
        (1, "solo", "solo"),
        (4, "c[1-3],x9", "c1 c2 c3 x9"),
        (5, "c[08-11,100],y-2", "c08 c09 c10 c11 c100 y-2"),
        (2, "n1.example.org,n[2]", "n1.example.org n2"),
        (3, "a[1-2]-ib,b", "asked a[1-2]-ib,b"),
        (4, "r[1-2]n[3-4]", "asked r[1-2]n[3-4]"),
        (100, "c[1-100]", "asked c[1-100]"),
    ],
)
def test_the_names_of_slurms_nodes(nodes: int, names: str, found: str) -> None:
    functions = registry.scheduler("slurm").snippet()
    ask = 'scontrol() { printf "%s\\n" asked "$3"; }\n'
    said = bash(f"{ask}BAREBOAT_NODES={nodes} SLURM_JOB_NODELIST='{names}'\n{functions}\nhosts")
    assert said.decode().split() == found.split()


# -- Slurm's step for each node --------------------------------------------------------------------

STEP = (
    "SLURM_CPU_BIND", "SLURM_CPU_BIND_LIST", "SLURM_CPU_BIND_TYPE", "SLURM_CPU_BIND_VERBOSE",
    "SLURM_CPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_MEM_PER_CPU",
)  # fmt: skip


def step_of_slurm(nodes: int, *variables: str) -> tuple[list[str], list[str]]:
    """The environment in which srun is called on every node, and the words that it runs there."""
    given = "".join(f"export {name}=7\n" for name in variables)
    srun = 'srun() { export -p; echo "words $*"; }'
    start = "begin_scheduler; " + ("on_each_node job.sh --node run" if nodes > 1 else "srun")
    text = f"{srun}\n{given}BAREBOAT_NODES={nodes}\n{registry.scheduler('slurm').snippet()}\n{start}"
    lines = bash(text).decode().splitlines()
    return [line for line in lines if line.startswith("declare")], lines[-1].split()


def test_the_step_for_each_node_gets_all_cpus_of_the_node() -> None:
    environment, words = step_of_slurm(2, *STEP, "SLURM_MEM_PER_NODE", "SLURM_JOB_ID")
    assert not [line for line in environment if any(f" {name}=" in line for name in STEP)]
    assert {'declare -x SLURM_MEM_PER_NODE="7"', 'declare -x SLURM_JOB_ID="7"'} <= set(environment)
    # What programs read is as before.
    assert words[-7:] == ["env", "SLURM_CPUS_PER_TASK=7", "bash", "job.sh", "--node", "SLURM_NODEID", "run"]


def test_what_does_not_concern_the_step_stays() -> None:
    environment, _ = step_of_slurm(1, "SLURM_CPUS_PER_TASK", "SLURM_MEM_PER_CPU", "SLURM_CPU_BIND")
    found = " ".join(environment)
    assert "SLURM_CPUS_PER_TASK" in found
    assert "SLURM_MEM_PER_CPU" in found
    assert "SLURM_CPU_BIND" not in found


# -- the interface ---------------------------------------------------------------------------------

_HEADING = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
DEFAULT = "eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
NEAR = "eth0\t0000000A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
FABRIC = "ib0\t0002000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
AGAIN = FABRIC.replace("ib0", "ib1")
DOWN = NEAR.replace("eth0", "eth9").replace("0001", "0000")
REFUSED = FABRIC.replace("ib0", "*").replace("0001", "0201")


@pytest.mark.parametrize(
    ("routes", "master", "interface"),
    [
        ((DEFAULT, NEAR, FABRIC), "10.0.2.7", "ib0"),
        ((FABRIC, NEAR, DEFAULT), "10.0.3.7", "eth0"),
        ((DEFAULT,), "192.168.0.1", "eth0"),
        ((NEAR,), "192.168.0.1", ""),
        ((NEAR, FABRIC, AGAIN), "10.0.2.7", ""),
        ((DOWN,), "10.0.2.7", ""),
        ((NEAR, REFUSED), "10.0.2.7", "eth0"),
        ((DEFAULT,), "a-name", ""),
    ],
)
def test_the_interface_is_that_of_the_longest_route(
    tmp_path: Path, routes: tuple[str, ...], master: str, interface: str
) -> None:
    table = tmp_path / "route"
    table.write_text(_HEADING + "".join(routes))
    text = render.subject("cluster").replace("/proc/net/route", str(table))
    text += "BAREBOAT_NODES=2; find_interface"
    said = bash(f'BAREBOAT_MASTER={master}\n{text}\necho "$BAREBOAT_INTERFACE"')
    assert said.decode().strip() == interface


def test_of_two_ways_as_good_ip_takes_one(tmp_path: Path) -> None:
    table = tmp_path / "route"
    table.write_text(_HEADING + FABRIC + AGAIN)
    text = render.subject("cluster").replace("/proc/net/route", str(table))
    text += "BAREBOAT_NODES=2; find_interface"
    ip = 'ip() { echo "3: ib1    inet 10.0.2.7/24 scope global ib1"; }\n'
    said = bash(f'{ip}BAREBOAT_MASTER=10.0.2.7\n{text}\necho "$BAREBOAT_INTERFACE"', path="/usr/bin:/bin")
    assert said.decode().strip() == "ib1"


# -- the port --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "master"),
    [("127.0.0.1", "127.0.0.1"), ("", "127.0.0.1"), ("127.0.0.2", "127.0.0.2"), ("::", "127.0.0.1")],
)
def test_a_port_that_somebody_listens_on_is_passed_over(address: str, master: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as listener:
        port = 20_000
        while True:
            try:
                listener.bind((address, port))
                break
            except OSError as error:
                if port == 39_000:
                    pytest.skip(f"no port can be bound: {error}")
                port += 1
        listener.listen()
        said = bash(
            f"BAREBOAT_JOB={port - 20_000} BAREBOAT_MASTER={master}\n"
            + render.subject("ends")
            + 'find_port; echo "$BAREBOAT_PORT"'
        )
    assert int(said) > port


@pytest.mark.parametrize(
    ("exits", "stopped", "expected"),
    [
        ("0 143\n1 7", "", "1 7"),
        ("0 143\n1 137", "", "1 137"),
        ("0 143", "", "1 137"),  # with the part of the script that would have written its code
        ("0 143", " TERM", "0 143"),
    ],
)
def test_the_rank_that_shows_the_cause(exits: str, stopped: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "exits.c1").write_text(f"{exits}\n")
    said = bash(
        f"has() {{ false; }}\nBAREBOAT_CONTROL={tmp_path} start=program world_size=2 code=9\n"
        f"stopped='{stopped}'\n"
        f'{render.subject("ends")}\nfind_first_failure 2> /dev/null\necho "$failed_rank $code"',
        path="/usr/bin:/bin",
    )
    assert said.decode() == f"{expected}\n"


# -- the output of ranks ---------------------------------------------------------------------------


def keep(output: bytes, log: Path, *, path: str = "/usr/bin:/bin") -> tuple[bytes, bytes]:
    """What goes to the job's output, and into the file."""
    said = bash(f"RANK=3\n{render.subject('ranks')}\nread_output '{log}'", stdin=output, path=path)
    return said, log.read_bytes()


@pytest.mark.parametrize(
    "output",
    [
        b"one\n", b"  a\\b \xff\n\ntwo\n", b"\n", b"\n\ntwo\n", b"one\nno end", b"no end", b"x",
        b"one\n\0two\n", b"\0", b"\0\none\n", b"a\0b\0", b"x" * 200_000 + b"\ny\n",
        *(bytes([first]) + b"\n\n" for first in b"%\\&/\x01\x7f\xc3\xff"),
    ],
)  # fmt: skip
def test_what_a_rank_says_is_kept_and_told_with_its_number(tmp_path: Path, output: bytes) -> None:
    said, kept = keep(output, tmp_path / "log")
    assert kept == output
    assert said == b"".join(b"[rank 3] " + line for line in output.splitlines(keepends=True))


def test_who_says_nothing_has_no_program_started(tmp_path: Path) -> None:
    assert keep(b"", tmp_path / "log", path="/nonexistent") == (b"", b"")


def follow(ranks: str, folder: Path, told: Path) -> bytes:
    """What is told of a node's two ranks, 2 and 3; bash writes their output to the files."""
    script = f"""
BAREBOAT_NODE=1 rank_logs='{folder}/logs' ranks_per_node=2
{render.subject("nodes")}
follow_ranks
{{ {ranks}; }} 6>&-
followed"""
    (folder / "logs").mkdir()
    with told.open("wb") as stream:
        words = [tool("bash"), "-uc", script]
        subprocess.run(words, stdout=stream, stderr=subprocess.STDOUT, check=True, timeout=60)
    return told.read_bytes()


@pytest.mark.parametrize("stream", ["out", "err"])
@pytest.mark.parametrize(
    "output",
    [b"", b"one\n", b"  a\\b %s \xff\n\ntwo\n", b"one\nno end", b"x" * 200_000 + b"\ny\n", b"n\n" * 5000],
)
def test_what_a_rank_writes_to_files_is_told_with_its_number(
    tmp_path: Path, output: bytes, stream: str
) -> None:
    (tmp_path / "output").write_bytes(output)
    log = tmp_path / f"logs/3.{stream}"
    said = follow(f"cat '{tmp_path}/output' >> '{log}'", tmp_path, tmp_path / "told")
    assert said == b"".join(b"[rank 3] " + line for line in output.splitlines(keepends=True))
    assert log.read_bytes() == output


def test_a_line_is_told_when_it_is_whole(tmp_path: Path) -> None:
    """Then at once: the ranks wait for it."""
    told = tmp_path / "told"
    ranks = f"""cd '{tmp_path}/logs'
printf on >> 2.out
sleep 0.5
printf 'e\\ntwo' >> 2.out
until grep -q one '{told}'; do sleep 0.05; done
echo other >> 3.out"""
    assert follow(ranks, tmp_path, told) == b"[rank 2] one\n[rank 3] other\n[rank 2] two"


def test_who_holds_a_ranks_output_after_its_end_is_not_waited_for(tmp_path: Path) -> None:
    ranks = f"sleep 300 >> '{tmp_path}/logs/2.out' 2>&1 & echo \"$!\""
    os.kill(int(follow(ranks, tmp_path, tmp_path / "told")), signal.SIGKILL)


def test_a_run_by_hand_keeps_its_script_where_nobody_can_exchange_it(tmp_path: Path) -> None:
    """Of a TMPDIR that everybody may write to, or that is relative, the next place is taken."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "own").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("own")
    parts = [library.subject(name) for name in ("private", "local_run")]
    for name, expected in (
        ("open", "/tmp"), ("own", f"{tmp_path}/own"), ("link", f"{tmp_path}/own"), ("", "/tmp"),
    ):  # fmt: skip
        environment = {"PATH": os.environ["PATH"], "TMPDIR": f"{tmp_path}/{name}" if name else "open"}
        done = subprocess.run(
            ["bash", "-uc", "\n".join([*parts, "temporary_directory"])],
            env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
        assert (done.stdout, done.stderr) == (expected, "")


# -- the parts of the script -----------------------------------------------------------------------


@pytest.mark.parametrize("part", ["--bring", "--leave"])
def test_a_part_that_copies_the_image_needs_no_number_of_its_node(part: str, tmp_path: Path) -> None:
    stubs = 'set_rank_logs() { :; }\nneed_all() { :; }\nuse_image() { echo "$part"; exit 0; }\n'
    pieces = render.subject("common") + render.subject("cluster") + stubs
    said = bash(f"features=' delivery ' rung=1 start=program\n{pieces}\nmain {part} 0 run {tmp_path} 1")
    assert said.decode() == f"{part}\n"
    assert len(list(tmp_path.glob("ends.*"))) == 1
