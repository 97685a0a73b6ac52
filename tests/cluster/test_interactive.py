"""`run` and `prove` in an interactive job, whose shell is on the job's first node (qrsh)."""

import re

from clusters import Cluster
from installation import install_for_nodes
from trainings import make_small_environment, write_job, write_training

from bareboat_images.store import Store
from bareboat_study import matrix, point_runs


def test_run_uses_the_nodes_of_a_qrsh(gridengine: Cluster) -> None:
    bin_folder = install_for_nodes(gridengine.home)
    folder = gridengine.home / "interactive"
    folder.mkdir()
    for nodes in (1, 2, 3):
        (folder / f"job{nodes}.toml").write_text(
            'command = ["sh", "-c", "echo rank $RANK of $WORLD_SIZE on $(uname -n); exit $RANK"]\n'
            f'engine = "native"\nlauncher = "{"ranks" if nodes > 1 else "single"}"\nwalltime_s = 60\n'
            f'name = "job{nodes}"\n[topology]\nnodes = {nodes}\n[capture]\npython = "/usr/bin/python3"\n'
        )
    lines = (
        f"cd {folder}; export PATH={bin_folder}:$PATH BAREBOAT_STORE={gridengine.home}/store; uname -n; "
        "for n in 2 1 3; do bareboat run job$n.toml; echo code $n $?; done; "
        "bareboat submit --dry-run job1.toml; bareboat status"
    )
    (folder / "lines.sh").write_text(lines)
    done = gridengine.login(
        ["qrsh", "-now", "no", "-pe", "each1", "2", "-V", "bash", folder / "lines.sh"],
        check=False, timeout_s=240,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert "[rank 0] rank 0 of 2" in said, said
    assert re.search(r"\[rank 1\] rank 1 of 2 on c[123]", said), said
    assert "code 2 1" in said, said
    hosts = set(re.findall(r"rank \d of 2 on (c\d)", said))
    assert len(hosts) == 2
    assert "run job2-" in said
    assert "code 1 0" in said, said
    assert "the job needs 3 nodes, but gridengine job" in said, said
    assert "submit starts a new job" in said, said
    assert re.search(r"^job2-\S+ .* gridengine job \d+ +1 ", said, re.MULTILINE), said


def test_prove_measures_on_the_node_of_a_qrsh(gridengine: Cluster) -> None:
    bin_folder = install_for_nodes(gridengine.home, "run")
    folder = gridengine.home / "study"
    folder.mkdir()
    python = make_small_environment(folder / "env")
    write_training(folder)
    write_job(folder, repeats=2)
    lines = (
        f"cd {folder}; export PATH={bin_folder}:$PATH BAREBOAT_STORE={gridengine.home}/store; uname -n; "
        f"bareboat prove --python {python} job.toml; echo code $?"
    )
    (folder / "lines.sh").write_text(lines)
    done = gridengine.login(
        ["qrsh", "-now", "no", "-pe", "smp", "1", "-V", "bash", folder / "lines.sh"],
        check=False, timeout_s=240,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert "code 0" in said, said
    store = Store(gridengine.home / "store")
    (run_id,) = (run for run in store.runs() if run.startswith("study-"))
    (study,) = matrix.points(store, matrix.read(store, run_id))
    assert study.site.hostname == done.stdout.split()[0], said
    assert [record.exit_code for record in point_runs.read_records(store, study)] == [0] * 6
    assert (folder / "report.html").exists()
