"""Horovod in a recipe: compiled from its last release's source in a stage of its own. Pure.

The edits are those of `bareboat.site_layer.horovod`: the release is of 2023.
"""

from __future__ import annotations

import shlex

from bareboat.mpi.site_layer import HOROVOD, horovod_edits
from bareboat.project.recipes.catalogue import MPI_PREFIX
from bareboat.project.recipes.document import Arg, Run, Stage, Step
from bareboat.project.recipes.installing import CERTIFICATES, ENVIRONMENT
from bareboat.project.recipes.wanted import Wanted

_SOURCE = "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"
_SETUPTOOLS = (
    "setuptools==75.8.0 --hash=sha256:e3982f444617239225d675215d51f6ba05f845d4eec313da4418fdbb56fb27e3"
)
_WHEELS = "/opt/wheels"
#: What Horovod imports at run time.
_NEEDS = "cloudpickle psutil pyyaml packaging"


def stages(wanted: Wanted) -> list[Stage]:
    """The stage that compiles, and the last one, which installs its wheel."""
    framework = "TENSORFLOW" if _is_tensorflow(wanted) else "PYTORCH"
    pip = f"{ENVIRONMENT}/bin/pip"
    compile_steps: list[Step] = [
        *CERTIFICATES,
        Run(
            commands=(
                "export DEBIAN_FRONTEND=noninteractive",
                "apt-get update",
                "apt-get install -y --no-install-recommends cmake g++ make python3-dev",
            ),
        ),
    ]
    if wanted.march:
        compile_steps.append(
            Arg(
                name="CXXFLAGS",
                value=f"-O2 -march={wanted.march}",
                why=(f"For the site's processors: {wanted.why['cpu']}.",),
            )
        )
    compile_steps.append(
        Run(
            why=(
                f"Horovod {HOROVOD}, its last release, is of 2023: edited for later versions of PyTorch, "
                "TensorFlow and Python. It is compiled with MPI and Gloo, without NCCL: tensors on GPUs pass "
                "through the memory of the host.",
            ),
            commands=(
                f"echo '{_pin()}' > /tmp/source.txt",
                f"echo '{_SETUPTOOLS}' > /tmp/tools.txt",
                f"{pip} install --no-cache-dir --require-hashes -r /tmp/tools.txt",
                f"{pip} download --no-deps --no-build-isolation --no-binary=:all: --require-hashes -d /tmp "
                "-r /tmp/source.txt",
                f"tar -xzf /tmp/horovod-{HOROVOD}.tar.gz -C /tmp",
                f"cd /tmp/horovod-{HOROVOD}",
                *_edits(wanted),
                f"{pip} install --no-cache-dir {_NEEDS}",
                f"HOROVOD_WITH_{framework}=1 HOROVOD_WITH_MPI=1 HOROVOD_WITH_GLOO=1 MPI_HOME={MPI_PREFIX} "
                f"{pip} wheel --no-deps --no-build-isolation -w {_WHEELS} .",
            ),
            network=True,
        )
    )
    install = f"{pip} install --no-cache-dir {_WHEELS}/*.whl {_NEEDS}"
    return [
        Stage(base="environment", name="horovod", steps=tuple(compile_steps)),
        Stage(
            base="environment",
            steps=(
                *CERTIFICATES,
                Run(commands=(install,), network=True, mounts=(("horovod", _WHEELS),)),
            ),
        ),
    ]


def _pin() -> str:
    return f"horovod=={HOROVOD} --hash=sha256:{_SOURCE}"


def _is_tensorflow(wanted: Wanted) -> bool:
    names = wanted.listed.packages if wanted.listed is not None else {}
    if wanted.release is not None:
        return wanted.release.requirement.startswith("tensorflow")
    return any(name.startswith("tensorflow") for name in names)


def _edits(wanted: Wanted) -> list[str]:
    """Commands that edit the source; each fails where the text is missing."""
    versions = dict(wanted.listed.packages) if wanted.listed is not None else {}
    if wanted.release is not None:
        name, _, version = wanted.release.requirement.partition("==")
        versions[name.partition("[")[0]] = version
    program = (
        "import sys; name, old, new = sys.argv[1:]; text = open(name).read(); assert old in text, name; "
        'open(name, "w").write(text.replace(old, new))'
    )
    edits = [f'edit() {{ python3 -c {shlex.quote(program)} "$@"; }}']
    return edits + [" ".join(map(shlex.quote, ("edit", *each))) for each in horovod_edits(versions)]
