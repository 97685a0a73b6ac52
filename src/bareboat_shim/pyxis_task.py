"""A task of Slurm on a node, in a container: `python -c … SETTINGS COMMAND`."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from bareboat_base.files import ownership
from bareboat_shim import main, pmix, pyxis_mounts, pyxis_names, pyxis_script, shims
from bareboat_shim.table import Mistake

if TYPE_CHECKING:
    from bareboat.api.container import Container
    from bareboat.model import Mount

_SCRIPT = "/slurm_script"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: What Slurm's PMIx plug-in decides, by the variables that libraries read.
_PMIX = {"PMIX_MCA_gds": "PMIX_GDS_MODULE", "PMIX_MCA_psec": "PMIX_SECURITY_MODE"}
#: Set by images of PyTorch.
_PYTORCH = "PYTORCH_VERSION"
_FIRST_PORT, _PORTS = 49152, 16384


def entry() -> NoReturn:
    gc.disable()  # it ends soon
    settings, *command = sys.argv[1:]
    values = json.loads(settings)
    environment = dict(os.environ)
    is_quiet = environment.get("SLURM_LOCALID", "0") != "0"
    code = main.reported(
        lambda: run(values, command, environment), main.Form(f"{values['tool']}: error: ", 1, 1, is_quiet)
    )
    main.finish(code)


def run(values: Mapping[str, Any], command: Sequence[str], outside: Mapping[str, str]) -> int:
    """Run the command, or the batch script of this name, in the container of the settings; return its exit
    code, -N for signal N. Raises Mistake and BareboatError."""
    if values["tool"] != "sbatch":
        return _run(values, command, (), outside)
    text = pyxis_script.extracted(command[0])
    from bareboat.model import Mount

    with _file(text) as path:
        script = Mount(source=path, target=_SCRIPT, writable=False)
        return _run(values, [*pyxis_script.interpreter(text, _SCRIPT), *command[1:]], (script,), outside)


@contextlib.contextmanager
def _file(text: str) -> Iterator[str]:
    folder = ownership.temporary_directory()
    with tempfile.NamedTemporaryFile(
        "w", prefix="slurm_script-", errors="surrogateescape", dir=folder
    ) as stream:
        stream.write(text)
        stream.flush()
        yield stream.name


def _run(
    values: Mapping[str, Any], command: Sequence[str], more: Sequence[Mount], outside: Mapping[str, str]
) -> int:
    _use_store(values)
    pyxis_names.check_save(values, outside)
    with pyxis_names.entered(values, outside) as place:
        code = _run_in(place, values, (command, more), outside)
    if values["save"]:
        pyxis_names.save(values, place.subject, outside)
    return code


def _run_in(
    place: pyxis_names.Place,
    values: Mapping[str, Any],
    task: tuple[Sequence[str], Sequence[Mount]],
    outside: Mapping[str, str],
) -> int:
    """Run a task, its command with the mounts that it needs."""
    from bareboat.api.container import Container, User
    from bareboat.model import Mount
    from bareboat_shim.apptainer import check_program, user_home

    command, more = task
    known = {**outside, **place.environment}
    outer_home = user_home(outside)
    user = User(0, 0, "root", "/root") if values["remap_root"] else None
    home = outer_home if user is None else user.home
    shown = pyxis_mounts.shown(
        (spec for text in place.mounts for spec in pyxis_mounts.parse(text)),
        home=Mount(source=outer_home, target=home, writable=True) if values["mount_home"] else None,
        needed=pmix.folders(outside),
    )
    container = Container(
        place.subject,
        mounts=(*shown.mounts, *more),
        empty=shown.empty,
        home=home,
        namespaces=values["unshare"],
        gpu="nvidia" if known.get("NVIDIA_VISIBLE_DEVICES", "void") not in ("", "void") else None,
    )
    inside = environment(values["names"], outside, place.environment, home=home)
    workdir = _workdir(container, values["workdir"])
    words = (*(container.entrypoint if values["entrypoint"] else ()), *command)
    check_program(container, words[0], inside["PATH"], workdir)
    inside |= {"PWD": workdir, shims.INSIDE: values["tool"]}
    return container.run(
        words, environment=inside, workdir=workdir, writable=values["writable"] is not False, user=user
    )


def _use_store(values: Mapping[str, Any]) -> None:
    """The store that has the image. Raises Mistake where this node does not see it."""
    if not os.path.isdir(values["store"]):
        raise Mistake(
            f"{os.uname().nodename} does not see the store {values['store']}",
            "export BAREBOAT_STORE=DIR, in a file system that all nodes see",
        )
    os.environ["BAREBOAT_STORE"] = values["store"]


def _workdir(container: Container, path: str | None) -> str:
    """Raises Mistake for a directory that the container lacks."""
    if not path:
        return container.workdir if container.is_directory(container.workdir) else "/"
    path = os.path.normpath(os.path.join("/", path))
    if not container.is_directory(path):
        raise Mistake(f"couldn't chdir to {path}: No such file or directory", "--container-workdir=DIR")
    return path


def environment(
    names: Sequence[str], outside: Mapping[str, str], image: Mapping[str, str], *, home: str
) -> dict[str, str]:
    """The variables of a task: the image's have priority over the shell's, but for these names."""
    values = {**pmix.settings(outside), **outside, "LANG": "C.UTF-8", "PATH": _PATH, **image, "HOME": home}
    values |= {name: outside[name] for name in names if name in outside}
    for name, source in _PMIX.items():
        if source in outside:
            values.setdefault(name, outside[source])
    if _PYTORCH in values and "SLURM_PROCID" in outside:
        for name, value in _rendezvous(outside).items():
            values.setdefault(name, value)
    return values


def _rendezvous(outside: Mapping[str, str]) -> dict[str, str]:
    """What PyTorch reads, of Slurm's variables."""
    first = re.match(r"([^,\[]+)(?:\[([0-9]+))?", outside.get("SLURM_STEP_NODELIST", ""))
    port = _FIRST_PORT + int(outside.get("SLURM_JOB_ID", "0")) % _PORTS
    return {
        "RANK": outside["SLURM_PROCID"],
        "LOCAL_RANK": outside.get("SLURM_LOCALID", "0"),
        "WORLD_SIZE": outside.get("SLURM_NTASKS", "1"),
        "MASTER_ADDR": f"{first[1]}{first[2] or ''}" if first else "localhost",
        "MASTER_PORT": str(port),
    }
