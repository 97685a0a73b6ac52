"""The watchdog in the plan, and what is reported of a run that it ended."""

from __future__ import annotations

from builders import fake_digest, make_image, make_job, make_rootfs, make_site

from bareboat import render
from bareboat.model import JobState, Plan, Scheduling, Submission, Topology
from bareboat.plan import plan
from bareboat.runs import state
from bareboat_base import codec
from bareboat_images.store import Store


def watched(watchdog_s: int = 600) -> Plan:
    image = make_image()
    job = make_job(
        scheduling=Scheduling(watchdog_s=watchdog_s), topology=Topology(ranks_per_node=2),
        environment={"PYTHONUNBUFFERED": "0"},
    )  # fmt: skip
    return plan(job, image, make_rootfs(image), make_site())


def test_the_jobs_own_variables_go_over_the_watchdogs() -> None:
    script = render.script(watched())
    assert "--setenv PYTHONUNBUFFERED 0" in script


# --- what is told of a run afterwards -----------------------------------------------------------------------


def ended(store: Store, code: int, **files: str) -> state.Status:
    run = store.new_run("train")
    ranks = store.run(run) / "control"
    (ranks / "watch").mkdir(parents=True)
    (store.run(run) / "ranks" / "progress").mkdir(parents=True)
    made = Submission(
        run_id=run, scheduler="slurm", job_id="17", name="train", nodes=2, world_size=4, engine="native",
        submitted_at="2026-11-22T03:00:00Z", plan_digest=fake_digest("1"), image_digest=None,
        site_digest=fake_digest("2"),
    )  # fmt: skip
    store.write(store.run(run) / "submission.json", codec.to_json(made))
    (ranks / "starts").write_text("100 c1 17\n")
    (ranks / "hosts").write_text("c1\nc2\n")
    (ranks / "exit_code").write_text(f"{code} 160\n")
    for name, text in files.items():
        folder = ranks if not name.startswith("progress") else store.run(run) / "ranks"
        (folder / name.replace("__", "/")).write_text(text)
    status = state.from_files(store, made)
    assert status is not None
    return state.with_cause(store, status, None)


def test_a_hang_is_told_on_all_nodes(store: Store) -> None:
    status = ended(store, 71, watch__verdict="")
    assert status.state is JobState.FAILED
    assert status.reason.startswith("hung: ")
    assert status.nodes == "c[1-2]"


def test_another_program_may_end_with_71(store: Store) -> None:
    assert ended(store, 71).reason == "exit code: the command exited with 71"
