"""A recipe: the whole Dockerfile. Pure."""

from __future__ import annotations

import textwrap

from bareboat.project.recipes import horovod, installing
from bareboat.project.recipes.catalogue import MPI_PREFIX, MPIS
from bareboat.project.recipes.dockerfile import arg, comments, copy, env, run, stage
from bareboat.project.recipes.installing import CERTIFICATES, TOOLS
from bareboat.project.recipes.wanted import Wanted

_APT_CLEAN = "rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log"


_BUILD = (
    "Build it: bareboat image build -t NAME .",
    "Behind a proxy with its own certificates, or with an index of your site, add: "
    "--secret id=ca,src=/etc/ssl/certs/ca-certificates.crt --secret id=pip,src=$HOME/.config/pip/pip.conf",
)
_VARIANTS = (
    "Other MPIs: bareboat image build --matrix "
    f"mpi={','.join(each.title for each in MPIS)} --tag NAME:{{mpi}} ."
)


def compose(wanted: Wanted, command: str) -> str:
    """The Dockerfile. `command`: how to write it again."""
    made = installing.install(wanted)
    head = (*_head(wanted, command), *_BUILD, *((_VARIANTS,) if wanted.mpi is not None else ()))
    blocks = ["\n".join(comments(head))]
    blocks += [stage(base=image, name=name) for name, image in made.images.items()]
    blocks.append(
        stage(base=wanted.base, name="system", why=_base_comment(wanted), steps=[_apt(wanted, made)])
    )
    if wanted.mpi is not None or made.tools:
        blocks.append(stage(base="system", name="tools", steps=_tools(made)))
    if wanted.mpi is not None:
        blocks.append(stage(base="tools", name="mpi", steps=_mpi_build(wanted)))
    steps = [*made.steps, *(_mpi_steps() if wanted.mpi is not None else ())]
    has_horovod = wanted.choices.horovod
    blocks.append(stage(base="system", name="environment" if has_horovod else "", steps=steps))
    return "\n\n".join([*blocks, *(horovod.stages(wanted) if has_horovod else ())]) + "\n"


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
    if "@sha256:" not in wanted.base and "/" in wanted.base:
        lines.append(
            "To fix the base, add the digest that `bareboat image pull` prints: "
            f"{wanted.base.rpartition('/')[2]}@sha256:…"
        )
    return tuple(lines)


def _apt(wanted: Wanted, made: installing.Installation) -> str:
    packages = {"ca-certificates", *wanted.verbs}
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
    return run(
        why=tuple(why),
        commands=("export DEBIAN_FRONTEND=noninteractive", "apt-get update", install, _APT_CLEAN),
    )


def _tools(made: installing.Installation) -> tuple[str, ...]:
    """Programs that install, which the image does not keep."""
    commands = [f"python3 -m venv {TOOLS}", *made.tools]
    return (*CERTIFICATES, run(why=made.tools_why, commands=tuple(commands), network=bool(made.tools)))


def _mpi_build(wanted: Wanted) -> tuple[str, ...]:
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
        arg("MPI", wanted.mpi.title, why=tuple(why)),
        *CERTIFICATES,
        run(
            commands=(
                choose,
                'echo "$pin" > /tmp/mpi.txt',
                f"{pip} --prefix={MPI_PREFIX} -r /tmp/mpi.txt",
                "rm /tmp/mpi.txt",
            ),
            network=True,
        ),
    )


def _mpi_steps() -> list[str]:
    values = {"OPAL_PREFIX": MPI_PREFIX, "PATH": f"{MPI_PREFIX}/bin:$PATH"}
    return [
        copy(
            files=(MPI_PREFIX,),
            target=MPI_PREFIX,
            source="mpi",
            why=("After the environment, which all variants of the MPI share.",),
        ),
        run(commands=(f"echo {MPI_PREFIX}/lib > /etc/ld.so.conf.d/000-mpi.conf", "ldconfig")),
        env(values),
    ]
