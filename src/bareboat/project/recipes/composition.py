"""The steps of a recipe. Pure."""

from __future__ import annotations

import textwrap

from bareboat.project.recipes import horovod, installing
from bareboat.project.recipes.catalogue import MPI_PREFIX, MPIS
from bareboat.project.recipes.document import Arg, Copy, Env, Recipe, Run, Stage, Step
from bareboat.project.recipes.installing import CERTIFICATES, TOOLS
from bareboat.project.recipes.wanted import Wanted

_APT_CLEAN = "rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log"


def compose(wanted: Wanted, command: str) -> Recipe:
    """The recipe. `command`: how to write it again."""
    made = installing.install(wanted)
    system = Stage(base=wanted.base, name="system", why=_base_comment(wanted), steps=(_apt(wanted, made),))
    stages = [system]
    needs_pip = wanted.mpi is not None or made.tools
    if needs_pip:
        stages.append(Stage(base="system", name="tools", steps=_tools(wanted, made)))
    if wanted.mpi is not None:
        stages.append(Stage(base="tools", name="mpi", steps=_mpi_build(wanted)))
    stages += made.stages
    final = list(made.steps)
    if wanted.mpi is not None:
        final += _mpi_steps()
    stages.append(
        Stage(base="system", name="environment" if wanted.choices.horovod else "", steps=tuple(final))
    )
    if wanted.choices.horovod:
        stages += horovod.stages(wanted)
    return Recipe(head=_head(wanted, command), stages=tuple(stages), images=made.images)


def _head(wanted: Wanted, command: str) -> tuple[str, ...]:
    lines = [f"Written by: {command}"]
    if wanted.site is not None:
        node = wanted.site.node
        found = [node.distribution, f"glibc {node.glibc}", node.cpu_model]
        if wanted.site.gpu is not None:
            gpu = wanted.site.gpu
            models = dict.fromkeys(gpu.models)
            found.append(f"{', '.join(models) or gpu.vendor} with driver {gpu.version}")
        if wanted.site.fabric_title:
            found.append(wanted.site.fabric_title)
        found += [mpi.title for mpi in node.mpis]
        lines.append(f"For {wanted.site.title}: " + "; ".join(each for each in found if each))
    return tuple(lines)


def _base_comment(wanted: Wanted) -> tuple[str, ...]:
    lines = [f"Base: {wanted.why['base']}."] if wanted.why["base"] else []
    if wanted.why["inside"]:
        lines.append(f"It has {wanted.why['inside']}.")
    if wanted.inherits and wanted.mpi is None and wanted.why["mpi"]:
        lines.append(f"MPI: {wanted.why['mpi']}.")
    if "@sha256:" not in wanted.base and "/" in wanted.base:
        lines.append(
            "To fix the base, add the digest that `bareboat image pull` prints: "
            f"{wanted.base.rpartition('/')[2]}@sha256:…"
        )
    return tuple(lines)


def _apt(wanted: Wanted, made: installing.Installation) -> Run:
    packages = {"ca-certificates", *wanted.verbs, *made.apt}
    why = []
    if wanted.verbs:
        why.append(f"Fabric: {' '.join(wanted.verbs)}: {wanted.why['fabric']}.")
    if wanted.mpi is not None:
        packages.add("openssh-client")
        why.append("openssh-client: OpenMPI 4 ends a program that no launcher started where there is no ssh.")
    if wanted.system_python and (made.python or wanted.mpi is not None or made.tools):
        packages |= {"python3", "python3-venv"}
        if wanted.why["python"]:
            why.append(f"Python {wanted.python}: {wanted.why['python']}.")
    elif wanted.why["python"]:
        why.append(f"Python {wanted.python}: {wanted.why['python']}.")
    if made.needs_git:
        packages.add("git")
        why.append(
            f"git: packages of {wanted.listed.file if wanted.listed else ''} come from git repositories."
        )
    names = textwrap.wrap(" ".join(sorted(packages)), 64, break_long_words=False, break_on_hyphens=False)
    install = "apt-get install -y --no-install-recommends " + " \\\n      ".join(names)
    return Run(
        why=tuple(why),
        commands=("export DEBIAN_FRONTEND=noninteractive", "apt-get update", install, _APT_CLEAN),
    )


def _tools(wanted: Wanted, made: installing.Installation) -> tuple[Step, ...]:
    """Programs that install, which the image does not keep."""
    commands = [f"{wanted.program} -m venv {TOOLS}", *made.tools]
    return (*CERTIFICATES, Run(why=made.tools_why, commands=tuple(commands), network=bool(made.tools)))


def _mpi_build(wanted: Wanted) -> tuple[Step, ...]:
    assert wanted.mpi is not None
    why = [f"MPI: {wanted.mpi.facts.title}: {wanted.why['mpi']}."]
    if wanted.others:
        where = wanted.site.title if wanted.site is not None else ""
        why.append(f"Others at {where}: " + "; ".join(wanted.others) + ".")
    why.append("It brings UCX, libfabric and PMIx, and is pinned by SHA-256.")
    known = MPIS if not wanted.choices.horovod else tuple(m for m in MPIS if m.name == "openmpi")
    cases = "".join(f"      {each.title}) pin='{each.pinned()}' ;; \\\n" for each in known)
    choose = f'case "$MPI" in \\\n{cases}      *) echo "unknown MPI: $MPI" >&2; exit 2 ;; \\\n    esac'
    pip = f"{TOOLS}/bin/pip install --no-cache-dir --no-deps --only-binary=:all: --require-hashes"
    return (
        Arg(name="MPI", value=wanted.mpi.title, why=tuple(why)),
        *CERTIFICATES,
        Run(
            commands=(
                choose,
                'echo "$pin" > /tmp/mpi.txt',
                f"{pip} --prefix={MPI_PREFIX} -r /tmp/mpi.txt",
                "rm /tmp/mpi.txt",
            ),
            network=True,
        ),
    )


def _mpi_steps() -> list[Step]:
    values = {"OPAL_PREFIX": MPI_PREFIX, "PATH": f"{MPI_PREFIX}/bin:$PATH"}
    return [
        Copy(
            files=(MPI_PREFIX,),
            target=MPI_PREFIX,
            source="mpi",
            why=("After the environment, which all variants of the MPI share.",),
        ),
        Run(commands=(f"echo {MPI_PREFIX}/lib > /etc/ld.so.conf.d/000-mpi.conf", "ldconfig")),
        Env(values=values),
    ]
