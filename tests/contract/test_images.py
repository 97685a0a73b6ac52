"""`bareboat image` from end to end, against the real docker-registry, skopeo and podman."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import forked
import images
import pytest
from buildah import storage
from building import Said
from environments import Captured
from machines import HERE, OTHER
from registries import RealRegistry, real_registry
from tools import output, started, tool

from bareboat_images.store import Store


@dataclass(frozen=True)
class Bareboat:
    """`bareboat …` in a process of its own, with a store of the test's own."""

    store: Path
    folder: Path

    def __call__(self, *arguments: str | Path, code: int = 0) -> Said:
        done = forked.run(
            *arguments, env=os.environ | {"BAREBOAT_STORE": str(self.store)}, cwd=self.folder, timeout_s=120
        )
        assert "Traceback" not in done.stderr
        assert done.returncode == code, done.stderr
        return Said(done.returncode, done.stdout, done.stderr)

    def json(self, *arguments: str | Path) -> dict[str, object]:
        found: dict[str, object] = json.loads(self(*arguments, "--json").out)
        return found


@pytest.fixture
def bareboat(tmp_path: Path) -> Bareboat:
    (tmp_path / "work").mkdir()
    return Bareboat(tmp_path / "store", tmp_path / "work")


BASE = {"etc/os-release": b"ID=test\n", "etc/passwd": b"root:x:0:0::/root:/bin/sh\n", "data/base": b"base\n"}


@pytest.fixture(scope="module")
def base() -> bytes:
    return images.busybox(**{"data": None, **BASE})


@pytest.fixture(scope="module")
def app(base: bytes) -> images.Packed:
    return images.pack(
        base,
        images.tar({"data": None, "data/.wh.base": b"", "data/app": b"app\n", "lib": "data"}),
        Env=["PATH=/bin", "GREETING=hello world"],
        Cmd=["/bin/sh"],
    )


@pytest.fixture(scope="module")
def reference(registry: RealRegistry, app: images.Packed) -> str:
    return images.upload(registry, app, "team/app:1")


def pull(bareboat: Bareboat, reference: str, *more: str) -> Said:
    return bareboat("image", "pull", "--plain-http", reference, *more)


# -- pull ----------------------------------------------------------------------------------------------


def test_a_pulled_image_runs(bareboat: Bareboat, reference: str, app: images.Packed) -> None:
    said = pull(bareboat, reference, "--name", "app")
    assert app.digest in said.out
    assert "2 of 2 layers downloaded" in said.out
    job = 'name = "x"\nimage = "app"\ncommand = ["sh", "-c", "cat /data/app; ls /data; echo $GREETING"]\n'
    (bareboat.folder / "job.toml").write_text(job)
    assert bareboat("run", "-q", "job.toml").out == "app\napp\nhello world\n"


def test_the_user_has_a_name_in_an_image_that_does_not_know_them(bareboat: Bareboat, reference: str) -> None:
    pull(bareboat, reference, "--name", "app")
    (bareboat.folder / "job.toml").write_text('image = "app"\ncommand = ["whoami"]\n')
    me = output("id", "-un")
    assert bareboat("run", "-q", "job.toml").out == me


def test_a_job_names_an_image_by_its_reference_and_run_brings_it(
    bareboat: Bareboat, registry: RealRegistry, reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bareboat.folder / "job.toml").write_text(f'image = "{reference}"\ncommand = ["cat", "/data/app"]\n')
    refused = bareboat("plan", "job.toml", code=4)
    assert f"try: bareboat image pull {reference}" in refused.err
    monkeypatch.setenv("BAREBOAT_PLAIN_HTTP", registry.address)
    assert "not found in the store" in bareboat("plan", "job.toml", code=4).err
    assert bareboat("run", "-q", "job.toml").out == "app\n"
    assert "bubblewrap" in bareboat("plan", "job.toml").out


def test_an_image_runs_what_it_names_where_it_names(
    bareboat: Bareboat, registry: RealRegistry, base: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = images.pack(
        base,
        images.tar(
            {"srv": None, "srv/here": b"", "start": b'#!/bin/sh\necho "start $*"\nls\n'},
            modes={"start": 0o755},
        ),
        Entrypoint=["/start"],
        Cmd=["by itself"],
        WorkingDir="/srv",
        User="1234",
    )
    reference = images.upload(registry, image, "team/server:1")
    (bareboat.folder / "mine").write_text("x")
    monkeypatch.setenv("BAREBOAT_PLAIN_HTTP", registry.address)
    assert bareboat("run", "-q", "--image", reference).out == "start by itself\nhere\n"
    assert bareboat("run", "-q", "--image", reference, "--", "echo", "alone").out == "alone\n"
    (bareboat.folder / "job.toml").write_text('entrypoint = true\ncommand = ["told"]\nworkdir = "."\n')
    said = bareboat("run", "-q", "--image", reference, "job.toml").out
    assert said == "start told\njob.toml\nmine\n"
    (bareboat.folder / "job.toml").write_text(f'image = "{reference}"\n')
    assert bareboat("run", "-q", "job.toml").out == "start by itself\nhere\n"
    told = bareboat("plan", "-v", "job.toml").out
    assert "the image asks for user 1234" in told
    assert "/srv, the image's own" in told


@pytest.mark.parametrize("folder", ["/link", "/made/up", "/srv/"])
@pytest.mark.parametrize("engine", ["bubblewrap", "apptainer"])
def test_the_folder_that_an_image_names_may_be_a_link_or_missing(
    bareboat: Bareboat, registry: RealRegistry, base: bytes, folder: str, engine: str
) -> None:
    layer = images.tar({"srv": None, "srv/here": b"", "link": "/srv"})
    image = images.pack(base, layer, Cmd=["/bin/ls", "-a"], WorkingDir=folder)
    reference = images.upload(registry, image, "team/folder:1")
    pull(bareboat, reference)
    said = bareboat("run", "-q", "--engine", engine, "--image", reference).out.split()
    assert said == ([".", ".."] if folder == "/made/up" else [".", "..", "here"])


def test_an_image_that_names_no_process_needs_a_command(
    bareboat: Bareboat, registry: RealRegistry, base: bytes
) -> None:
    reference = images.upload(registry, images.pack(base), "team/bare:1")
    pull(bareboat, reference)
    said = bareboat("run", "--image", reference, code=3)
    assert f"the image {reference} has neither CMD nor ENTRYPOINT" in said.err
    assert "try: " in said.err


def test_a_second_pull_asks_once_and_fetches_nothing(
    bareboat: Bareboat, registry: RealRegistry, base: bytes
) -> None:
    image = images.pack(base, images.tar({"again": b"x"}))
    name = images.upload(registry, image, "team/again:1")
    pull(bareboat, name)
    before = registry.log
    assert "up to date" in pull(bareboat, name).out
    requests = [line for line in registry.log[len(before) :].splitlines() if ' HTTP/1.1" ' in line]
    assert len(requests) == 1
    assert "HEAD /v2/team/again/manifests/1" in requests[0]
    by_digest = f"{registry.address}/team/again@{image.digest}"
    pull(bareboat, by_digest)
    registry.kill()
    try:  # a digest needs no question at all
        assert "already in the store, as" in pull(bareboat, by_digest).out
    finally:
        registry.start()


def test_a_tag_that_moved_is_fetched_again(bareboat: Bareboat, registry: RealRegistry, base: bytes) -> None:
    old, new = (images.pack(base, images.tar({"which": word})) for word in (b"old", b"new"))
    name = images.upload(registry, old, "team/moving:1")
    pull(bareboat, name)
    images.upload(registry, new, "team/moving:1")
    assert new.digest in pull(bareboat, name).out
    pin = Store(bareboat.store).pinned(name)
    assert pin is not None
    assert pin.digest == pin.root == new.digest


def test_a_shared_base_costs_only_once(bareboat: Bareboat, registry: RealRegistry, base: bytes) -> None:
    one, two = (images.pack(base, images.tar({name: b"x"})) for name in ("one", "two"))
    names = [images.upload(registry, image, f"team/shared:{n}") for n, image in enumerate((one, two))]
    pull(bareboat, names[0])
    before = images.fetched(registry, two.layers[0])
    assert "1 of 2 layers downloaded" in pull(bareboat, names[1]).out
    assert images.fetched(registry, two.layers[0]) == before
    usage = bareboat.json("image", "du")
    for image in usage["images"]:  # type: ignore[attr-defined]
        assert image["own"]["inodes"] < 10 < image["shared"]["inodes"]


def test_an_image_for_another_machine_is_refused(
    bareboat: Bareboat, registry: RealRegistry, base: bytes
) -> None:
    name = images.upload(registry, images.pack(base, architecture=OTHER.oci), "team/other:1")
    said = bareboat("image", "pull", "--plain-http", name, code=6)
    refusal = f"is an image for linux/{OTHER.oci}, not for linux/{HERE.oci}"
    assert refusal in said.err
    assert f"image pull --arch {OTHER.name}" in said.err
    assert "known: x86_64, aarch64" in bareboat("image", "pull", "--arch", "vax", name, code=2).err
    bareboat("image", "pull", "--plain-http", "--arch", OTHER.name, name)
    # That it is in the store now makes it no image for this machine.
    assert refusal in bareboat("image", "pull", "--plain-http", name, code=6).err


def test_a_bundle_for_another_machine_is_refused(
    bareboat: Bareboat, registry: RealRegistry, base: bytes
) -> None:
    name = images.upload(registry, images.pack(base, architecture=OTHER.oci), "team/other:2")
    bareboat("image", "pull", "--plain-http", "--arch", OTHER.name, name)
    refusal = f"is an image for linux/{OTHER.oci}, not for linux/{HERE.oci}"
    bareboat("image", "save", "--plain-http", name, "other.tar")
    assert refusal in bareboat("image", "load", "other.tar", code=6).err


def test_an_index_is_read_anew_for_this_machine(bareboat: Bareboat, registry: RealRegistry) -> None:
    both = {
        each.oci: images.pack(images.tar({"a": each.sif}), architecture=each.oci) for each in (HERE, OTHER)
    }
    name = images.upload_index(registry, both, "team/both:1")
    assert both[OTHER.oci].digest in bareboat("image", "pull", "--plain-http", "--arch", OTHER.oci, name).out
    assert both[HERE.oci].digest in pull(bareboat, name).out


def test_32_processes_at_once_fetch_once(bareboat: Bareboat, registry: RealRegistry) -> None:
    image = images.pack(*(images.tar({f"f{n}": images.noise(300_000, n)}) for n in range(4)))
    name = images.upload(registry, image, "team/crowd:1")
    # Locks as some sites mount NFS: every call fails. Bareboat must not have needed them.
    (bareboat.folder / "sitecustomize.py").write_text(
        "import errno, fcntl, os\n"
        "def refuse(*_):\n    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))\n"
        "fcntl.flock = fcntl.lockf = refuse\n"
    )
    argv = [sys.executable, "-m", "bareboat", "image", "pull", "-q", "--plain-http", name]
    environment = os.environ | {"BAREBOAT_STORE": str(bareboat.store), "PYTHONPATH": str(bareboat.folder)}
    crowd = [started(argv, env=environment, stderr=subprocess.PIPE) for _ in range(32)]
    for each in crowd:
        out, err = each.communicate(timeout=120)
        assert each.returncode == 0, err
        assert image.digest in out
    assert [images.fetched(registry, layer) for layer in image.layers] == [1, 1, 1, 1]
    assert bareboat.json("image", "verify", name)["layers"]
    assert os.listdir(bareboat.store / "tmp") == []


# -- push ----------------------------------------------------------------------------------------------


def inspected(reference: str) -> dict[str, object]:
    said = output(tool("skopeo"), "inspect", "--tls-verify=false", f"docker://{reference}")
    found: dict[str, object] = json.loads(said)
    return found


def test_a_pushed_image_keeps_its_digest(
    bareboat: Bareboat, registry: RealRegistry, reference: str, app: images.Packed
) -> None:
    pull(bareboat, reference, "--name", "app")
    target = f"{registry.address}/other/app:2"
    said = bareboat("image", "push", "--plain-http", "app", target)
    assert app.digest in said.out
    assert inspected(target)["Digest"] == app.digest
    again = bareboat("image", "push", "--plain-http", "app", target)
    assert "0 blobs uploaded (0.0 MB), 3 already there" in again.out


def test_an_image_goes_from_one_registry_to_another_as_it_is(
    bareboat: Bareboat,
    reference: str,
    app: images.Packed,
    tmp_path: Path,
    registry: RealRegistry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pull(bareboat, reference, "--name", "app")
    with real_registry(tmp_path / "second") as second:
        target = f"{second.address}/team/app:1"
        monkeypatch.setenv("BAREBOAT_PLAIN_HTTP", f"{registry.address},{second.address}")
        said = bareboat("image", "push", "app", target)
        assert "3 blobs uploaded" in said.out
        assert inspected(target)["Digest"] == app.digest


def test_an_image_whose_source_is_gone_is_compressed_anew(
    bareboat: Bareboat, tmp_path: Path, base: bytes
) -> None:
    image = images.pack(base, images.tar({"x": b"y"}))
    with real_registry(tmp_path / "first") as first:
        pull(bareboat, images.upload(first, image, "team/gone:1"), "--name", "gone")
    with real_registry(tmp_path / "second") as second:
        target = f"{second.address}/team/gone:1"
        said = bareboat("image", "push", "--plain-http", "gone", target)
        assert "compressed again" in said.err
        found = inspected(target)
        assert found["Digest"] != image.digest
        other = Bareboat(tmp_path / "store2", bareboat.folder)
        pull(other, target, "--name", "back")
        assert [layer.diff_id for layer in Store(other.store).image("back").layers] == list(image.diff_ids)


def test_what_we_push_runs_in_podman(bareboat: Bareboat, registry: RealRegistry, reference: str) -> None:
    pull(bareboat, reference, "--name", "app")
    bareboat("image", "push", "--plain-http", "app", f"{registry.address}/podman/app:1")
    script = 'cat "$("$1" image mount "$2")/data/app"'
    with storage() as other:
        name = other("podman", "pull", "-q", "--tls-verify=false", f"{registry.address}/podman/app:1")
        assert other.as_its_user("sh", "-c", script, "sh", tool("podman"), name) == "app"


# -- carry ---------------------------------------------------------------------------------------------


def test_a_bundle_carries_the_image_and_its_name(bareboat: Bareboat, reference: str, tmp_path: Path) -> None:
    pull(bareboat, reference)
    bundle = tmp_path / "app.tar"
    bareboat("image", "save", "--plain-http", reference, bundle)
    assert output(tool("skopeo"), "inspect", f"oci-archive:{bundle}")  # other tools read it too
    store = tmp_path / "there" / "store"
    bareboat("image", "load", "--store", store, "--bind-tags", bundle)
    (tmp_path / "job.toml").write_text(f'image = "{reference}"\ncommand = ["cat", "/data/app"]\n')
    done = bareboat("run", "-q", "--store", store, tmp_path / "job.toml")
    assert done.out == "app\n"


@pytest.mark.parametrize("kind", ["squashfs", "oci-archive", "rootfs"])
def test_an_image_is_converted_and_comes_back(
    bareboat: Bareboat, reference: str, tmp_path: Path, kind: str
) -> None:
    if kind == "squashfs":
        tool("mksquashfs"), tool("unsquashfs")
    pull(bareboat, reference, "--name", "app")
    target = tmp_path / "made"
    bareboat("image", "save", "--plain-http", "app", f"{kind}:{target}")
    other = Bareboat(tmp_path / "store2", bareboat.folder)
    said = other("image", "pull", f"{kind}:{target}", "--name", "back")
    assert "reading made" in said.err
    (bareboat.folder / "job.toml").write_text(
        'image = "back"\ncommand = ["sh", "-c", "cat /data/app; ls /data"]\n'
    )
    assert other("run", "-q", "job.toml").out == "app\napp\n"
    if kind != "rootfs":
        began = time.monotonic()
        assert "up to date" in other("image", "pull", f"{kind}:{target}").out
        assert time.monotonic() - began < 20


def test_a_captured_environment_is_pushed_under_its_own_digest(
    bareboat: Bareboat, registry: RealRegistry, captured: Captured
) -> None:
    store = Store(captured.store.root)
    target = f"{registry.address}/team/captured:1"
    own = Bareboat(store.root, bareboat.folder)
    own("image", "push", "--plain-http", captured.image.digest, target)  # type: ignore[attr-defined]
    assert inspected(target)["Digest"] == captured.image.digest  # type: ignore[attr-defined]


# -- keep ----------------------------------------------------------------------------------------------


def test_a_changed_file_is_found_and_mended(bareboat: Bareboat, reference: str, app: images.Packed) -> None:
    pull(bareboat, reference, "--name", "app")
    bareboat("image", "verify", "app")
    store = Store(bareboat.store)
    (store.layer(app.diff_ids[1]) / "data/app").write_bytes(b"APP\n")
    said = bareboat("image", "verify", "app", code=4)
    assert "data/app" in said.err
    assert f"bareboat image pull --fresh {reference}" in said.err
    pull(bareboat, reference, "--fresh")
    bareboat("image", "verify", "app")


def test_a_removed_image_leaves_what_others_need(
    bareboat: Bareboat, registry: RealRegistry, base: bytes
) -> None:
    one, two = (images.pack(base, images.tar({name: b"x"})) for name in ("left", "gone"))
    names = [images.upload(registry, image, f"team/rm:{n}") for n, image in enumerate((one, two))]
    for name in names:
        pull(bareboat, name)
    bareboat("image", "rm", names[1])
    bareboat("image", "verify", names[0])
    store = Store(bareboat.store)
    assert store.has_layer(one.diff_ids[0])
    assert not store.has_layer(two.diff_ids[1])
    assert names[1] not in bareboat("image", "ls").out
    assert bareboat.json("image", "rm", "--unused")["freed"] == []


def test_show_tells_what_is_inside(bareboat: Bareboat, reference: str) -> None:
    pull(bareboat, reference)
    said = bareboat("image", "show", reference).out
    assert HERE.oci in said
    assert "/bin/sh" in said
    shown = bareboat.json("image", "show", reference)
    assert shown["image"]["environment"]["GREETING"] == "hello world"  # type: ignore[index]
