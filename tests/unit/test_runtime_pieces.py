"""Functions of the library, run by bash as they stand, with the values that the head of their file names."""

import os
import shlex
import subprocess
import time
from pathlib import Path

import pytest

PIECES = Path(__file__).parents[2] / "src" / "bareboat" / "render" / "runtime"


def piece(name: str) -> str:
    return (PIECES / f"{name}.sh").read_text()


def bash(script: str, *arguments: str, folder: Path | None = None) -> tuple[int, str, str]:
    done = subprocess.run(
        ["bash", "-uc", script, "bash", *arguments], capture_output=True, text=True, check=False, cwd=folder,
        timeout=30, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


# first_failure


def first_failure(code: int, ends: list[tuple[int, int]]) -> str:
    lines = "".join(f"{rank} {status}\n" for rank, status in ends)
    text = f"code={code}\n{piece('ends')}\nexits_of_run() {{ printf %s {shlex.quote(lines)}; }}\n"
    text = f"features= world_size=3 stopped=\n{piece('common')}{text}find_first_failure\n"
    exit_code, out, err = bash(text + 'printf "%s,%s,%s" "$failed_rank" "$failed_status" "$code"')
    rank, status, _ = out.split(",")
    said = f"bareboat: rank {rank} ended first, with exit code {status}\n" if status else ""
    assert (exit_code, err) == (0, said)
    return out


@pytest.mark.parametrize(
    ("code", "ends", "found"),
    [
        (0, [(0, 0), (1, 3)], ",,0"),
        (1, [(1, 0), (0, 7), (2, 143)], "0,7,7"),
        (143, [(2, 143), (1, 5), (0, 9)], "1,5,5"),
        (137, [(2, 137), (0, 143)], "2,137,137"),
        (4, [], ",,4"),
        (4, [(0, 0)], ",,4"),
    ],
)
def test_the_first_rank_that_failed_by_itself_gives_the_exit_code(
    code: int, ends: list[tuple[int, int]], found: str
) -> None:
    assert first_failure(code, ends) == found


# again


@pytest.mark.parametrize("accepts", [True, False])
@pytest.mark.parametrize("own_code", [None, 99])
def test_a_job_that_asks_is_put_back_into_the_queue(
    tmp_path: Path, accepts: bool, own_code: int | None
) -> None:
    setting = "" if own_code is None else f"AGAIN={own_code}; "
    again = f'again() {{ {setting}echo noise; echo "$1-812"; {"true" if accepts else "false"}; }}\n'
    script = f'BAREBOAT_CONTROL=.; code=75\n{again}{piece("cluster")}requeue "$@"; exit 70'
    code, out, _ = bash(script, "name", folder=tmp_path)
    assert out == ""
    if not accepts:
        assert code == 70, "the script goes on to its ordinary end"
        assert not (tmp_path / "agains").exists()
    else:
        assert code == (own_code or 75)
        assert (tmp_path / "agains").read_text() == "name-812\n"


@pytest.mark.parametrize("code", [0, 1, 70, 143])
def test_another_end_is_an_end(tmp_path: Path, code: int) -> None:
    script = f"BAREBOAT_CONTROL=.; code={code}\nagain() {{ echo called; }}\n{piece('cluster')}requeue; exit 0"
    assert bash(script, folder=tmp_path) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


# program, need


def test_a_program_is_missing_or_not_executable(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    (tmp_path / "good").write_text("")
    (tmp_path / "good").chmod(0o755)
    expected = {"good": 0, "plain": 126, "none": 127}
    for name, wanted in expected.items():
        script = (
            f"HERE=' on n1'\n{piece('requirements')}need_program ./it \"$PWD/{name}\" 'chmod +x it' 'ls it'"
        )
        code, out, err = bash(script, folder=tmp_path)
        assert (code, out) == (wanted, "")
        assert (err == "") == (wanted == 0)
        if wanted:
            assert err.endswith(f"  try: {'ls it' if wanted == 127 else 'chmod +x it'}\n")


# modules


def test_modules_are_loaded_in_one_command() -> None:
    values = "HERE=; site_modules=('gcc/12' 'a b')\nmodule() { printf '<%s>' \"$@\"; }\n"
    script = f"{values}{piece('modules')}load_modules"
    assert bash(script) == (0, "<load><gcc/12><a b>", "")


def test_a_job_without_its_modules_ends() -> None:
    values = "HERE=' on n1'; site_modules=(none a)\n"
    end = "load_modules || exit 3; echo later"
    module = "module() { echo 'no module none' >&2; false; }\n"
    code, out, err = bash(f"{values}{module}{piece('modules')}{end}")
    assert (code, out) == (3, "")
    assert err.startswith("no module none\nbareboat: module load none a failed on n1\n  try: module avail ")
    text = piece("modules").replace("/etc/profile.d/", "/nonexistent/")  # this machine may have them
    code, out, err = bash(f"{values}{text}{end}")
    assert (code, out) == (3, "")
    assert err.startswith('bareboat: the command "module" does not exist on n1\n  try: remove modules, ')


# port


@pytest.mark.parametrize(
    ("job", "number"),
    [
        ("17", 17), ("17_3", 173), ("17.3", 173), ("17[3]", 173), ("ƒ2aB7", 27), ("job-9", 9), ("", 0),
        ("17.pbs01.site2", 17), ("17[3].srv-10-20-30-40-50-60-70", 173), ("017.srv", 17),
        ("1234567.srv-10-20-30-40-50-60-70", 1234567),
    ],
)  # fmt: skip
def test_a_server_s_name_with_digits_changes_no_port(job: str, number: int) -> None:
    values = f"BAREBOAT_JOB={shlex.quote(job)} BAREBOAT_MASTER=127.0.0.1\n"
    code, out, err = bash(f'{values}{piece("ends")}find_port; echo "$BAREBOAT_PORT"')
    assert (code, err) == (0, "")
    assert 0 <= int(out) - 20_000 - number % 20_000 < 80


def test_a_helper_that_a_signal_ended_first_is_not_reported(tmp_path: Path) -> None:
    """A scheduler's SIGTERM reaches the helper as well as the script."""
    text = f"features=\n{piece('common')}\n{piece('cluster')}\nBAREBOAT_CONTROL=.\n"
    script = text + 'exit_commands=\nwatch_signals\n{ kill -KILL "$!"; wait "$!"; } 2> /dev/null\nexit 5\n'
    assert bash(script, folder=tmp_path) == (5, "", "")


# pass_once, stop


@pytest.mark.parametrize("trap", ["link", "fifo", "directory"])
def test_what_a_container_left_for_the_mark_of_a_stop_is_not_written(trap: str, tmp_path: Path) -> None:
    (tmp_path / "control").mkdir()
    (tmp_path / "ranks").mkdir()
    victim, mark = tmp_path / "authorized_keys", tmp_path / "ranks/stopping"
    victim.write_text("ssh-ed25519 AAAA\n")
    if trap == "link":
        mark.symlink_to(victim)
    elif trap == "fifo":
        os.mkfifo(mark)
    else:
        mark.mkdir()
    head = f"BAREBOAT_CONTROL={tmp_path}/control BAREBOAT_RUN_DIR={tmp_path}/ranks BAREBOAT_HOST=a\n"
    tail = "unreached_pids() { :; }\npass_once TERM\n"
    assert bash(f"features=\n{head}{piece('common')}{piece('processes')}{tail}")[::2] == (0, "")
    assert victim.read_text() == "ssh-ed25519 AAAA\n"


def test_a_stop_waits_for_every_rank(tmp_path: Path) -> None:
    script = (
        f"features= BAREBOAT_CONTROL={tmp_path} BAREBOAT_RUN_DIR= BAREBOAT_HOST=a stopped= by_group=\n"
        f"{piece('common')}{piece('processes')}{piece('local')}"
        "seldom() { :; }\npass_once() { :; }\nkill_run() { kill -KILL $second; }\n"
        "sleep 0 & first=$!\nsleep 60 & second=$!\nwait $first\n"
        'children=("$first" "$second") child=$first\n'
        "stop 143 TERM"
    )
    began_s = time.monotonic()
    assert bash(script)[0] == 143
    assert time.monotonic() - began_s > 5


# forget_pause


@pytest.mark.parametrize("plant", ["mkfifo", "ln -s /dev/zero"])
def test_what_another_user_puts_in_place_of_podmans_number_is_not_read(plant: str, tmp_path: Path) -> None:
    text = (PIECES.parents[1] / "engines" / "podman_pause.sh").read_text()
    state = f"XDG_RUNTIME_DIR={shlex.quote(str(tmp_path))}; mkdir -p $XDG_RUNTIME_DIR/libpod/tmp"
    script = f"{state}; {plant} $XDG_RUNTIME_DIR/libpod/tmp/pause.pid\n{text}forget_pause"
    assert bash(script, folder=tmp_path)[::2] == (0, "")
