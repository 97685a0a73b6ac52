"""The host's MPI launcher on several nodes of a scheduler that it does not support."""

import os
from pathlib import Path

import pytest
from tools import output

from bareboat import bash, registry

_TEXT = bash.piece("bareboat.render", "runtime/mpi_nodes")
#: What mpirun runs for a node, as OpenMPI and as Hydra do.
_CALLS = {
    "orte": '"$OMPI_MCA_plm_rsh_agent" c2 "A=1 ; printf \'%s|\' \\"\\$A\\" \'b c\'"',
    "hydra": '"$HYDRA_LAUNCHER_EXEC" -x c2 printf "\'%s|\'" 1 "\'b c\'"',
}


def lead(tmp_path: Path, more: str, **environment: str) -> str:
    script = tmp_path / "job.sh"
    script.write_text(
        f"{_TEXT}\nat_exit() {{ trap \"$1\" EXIT; }}\nhosts() {{ printf 'c1\\nc2\\n'; }}\n"
        'on_host() { printf "%s:" "$1" && shift && "$@"; }\n'
        'if [ "${1:-}" = --reach ]; then shift; reach "$@"; exit; fi\n'
        f"ranks_per_node=2 script=$0\nmapfile -t hosts < <(hosts)\nlead_launcher\n{more}\n"
    )
    return output("bash", script, env={"PATH": os.environ["PATH"], **environment}, timeout=20)


@pytest.mark.parametrize("launcher", _CALLS)
def test_the_launcher_reaches_a_node_by_the_script(launcher: str, tmp_path: Path) -> None:
    assert lead(tmp_path, _CALLS[launcher]) == "c2:1|b c|"


def test_a_daemon_finds_an_agent_on_its_node(tmp_path: Path) -> None:
    assert lead(tmp_path, '"$OMPI_MCA_plm_rsh_agent" c2 "echo -mca agent \\"$OMPI_MCA_plm_rsh_agent\\""') == (
        "c2:-mca agent /bin/true\n"
    )


def test_the_launcher_gets_the_nodes_and_nothing_is_left(tmp_path: Path) -> None:
    shown = lead(tmp_path, 'cat "$OMPI_MCA_orte_default_hostfile" "$PRTE_MCA_prte_default_hostfile" '
                           '"$HYDRA_HOST_FILE"; echo "$HYDRA_HOST_FILE"')  # fmt: skip
    *lines, place = shown.split("\n")[:-1]
    assert lines == ["c1 slots=2", "c2 slots=2"] * 2 + ["c1:2", "c2:2"]
    assert not Path(place).parent.exists()


def test_what_the_user_has_set_stays(tmp_path: Path) -> None:
    shown = lead(tmp_path, 'echo "$OMPI_MCA_plm_rsh_agent $HYDRA_LAUNCHER"', OMPI_MCA_plm_rsh_agent="own-ssh")
    assert shown == "own-ssh ssh\n"


def test_every_scheduler_but_slurm_reaches_one_node() -> None:
    for name in registry.names("schedulers"):
        scheduler = registry.scheduler(name)
        if not scheduler.IS_LOCAL and not scheduler.IN_SLURM:
            assert "\non_host()" in f"\n{scheduler.snippet()}", name
