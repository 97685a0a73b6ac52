"""Completion in real shells: flags, values after flags, names of runs and images, files."""

import os
from pathlib import Path

import pytest
from tools import output, tool


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A store with two images and a run, and a directory with a job file and a script."""
    (tmp_path / "store/names").mkdir(parents=True)
    for name in ("pytorch", "docker.io+library"):
        (tmp_path / "store/names" / name).write_text("sha256:" + "0" * 64)
    (tmp_path / "store/runs/train-20250101-000000").mkdir(parents=True)
    (tmp_path / "cwd").mkdir()
    for name in ("job.toml", "train.py", "my data"):
        (tmp_path / "cwd" / name).touch()
    path = f"{Path(tool('bareboat')).parent}:{os.environ['PATH']}"
    return {"HOME": str(tmp_path), "BAREBOAT_STORE": str(tmp_path / "store"), "PATH": path, "LANG": "C.UTF-8"}


def run(shell: str, script: str, environment: dict[str, str]) -> list[str]:
    folder = Path(environment["HOME"]) / "cwd"
    said = output(tool(shell), "-c", script, env=environment, cwd=folder, timeout=60)
    return sorted(line.partition("\t")[0] for line in said.splitlines())


#: The words before the cursor, and what the last may become.
CASES = {
    "bareboat ru": ["run"],
    "bareboat image pu": ["pull", "push"],
    "bareboat run --eng": ["--engine"],
    "bareboat run --engine bub": ["bubblewrap"],
    "bareboat plan -N 2 --form t": ["tree"],
    "bareboat image show py": ["pytorch"],
    "bareboat image rm pytorch d": ["docker.io+library"],
    "bareboat logs --rank 3 tr": ["train-20250101-000000"],
    "bareboat run --image py": ["pytorch"],
    "bareboat run -t 2h jo": ["job.toml"],
    "bareboat run train.py --jo": [],
    "bareboat run train.py my": ["my data"],
    "bareboat init --example ke": ["keras"],
    "bareboat init tr": ["train.py"],
    "bareboat nothing x": [],
}


@pytest.mark.parametrize(("line", "found"), [*CASES.items(), ("bareboat run --engine=ud", ["udocker"])])
def test_bash(environment: dict[str, str], line: str, found: list[str]) -> None:
    script = f"""
        source <(bareboat --completion bash)
        COMP_LINE='{line}' COMP_POINT={len(line)} COMP_TYPE=9 COMP_WORDS=({line})
        COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        _python_argcomplete bareboat "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD - 1]}}"
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    assert [word.rstrip().replace("\\", "") for word in run("bash", script, environment) if word] == found


@pytest.mark.parametrize(("line", "found"), CASES.items())
def test_fish(environment: dict[str, str], line: str, found: list[str]) -> None:
    script = f"bareboat --completion fish | source; complete -C '{line}'"
    assert run("fish", script, environment) == found


def test_zsh(environment: dict[str, str]) -> None:
    """In a real line editor."""
    script = r"""
        zmodload zsh/zpty
        zpty it zsh -f -i
        zpty -w it 'PS1=; autoload -Uz compinit; compinit -u -D; source <(bareboat --completion zsh)'
        zpty -w it 'echo rea''dy'; zpty -r it got '*ready*'
        for line in 'bareboat imag' 'bareboat run --engine bub' 'bareboat logs --rank 3 tr'; do
          zpty -wn it "$line"$'\t'; sleep 2
          zpty -wn it $'\C-A'': '$'\n'
        done
        zpty -w it 'echo th''e end'; zpty -r it got '*the end*'
        print -r -- "$got"
        zpty -d it
    """
    shown = " ".join(run("zsh", script, environment))
    for word in ("image ", "bubblewrap ", "train-20250101-000000 "):
        assert word in shown


@pytest.mark.parametrize("store", ["s3://x/y", "/etc/passwd"])
def test_a_mistake_on_the_line_prints_nothing(environment: dict[str, str], store: str) -> None:
    test_fish(environment | {"BAREBOAT_STORE": store}, "bareboat logs tr", [])
