"""Horovod in a recipe: compiled from its last release's source in a stage of its own. Pure.

The edits are those of `bareboat.site_layer.horovod`: the release is of 2023.
"""

from __future__ import annotations

import shlex

from bareboat.mpi.site_layer import CXXFLAGS, HOROVOD, horovod_edits
from bareboat.project.recipes.catalogue import ARM, MPI_PREFIX, X86, Wheel
from bareboat.project.recipes.dockerfile import env, run, stage
from bareboat.project.recipes.installing import CERTIFICATES, ENVIRONMENT
from bareboat.project.recipes.wanted import Wanted
from bareboat_base.versions import numbers

_SOURCE = "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"
#: Later versions lack features that its build uses.
_TOOLS = (
    Wheel(
        name="setuptools",
        version="75.8.0",
        sha256={"any": "e3982f444617239225d675215d51f6ba05f845d4eec313da4418fdbb56fb27e3"},
    ),
    Wheel(
        name="cmake",
        version="3.25.2",
        sha256={
            X86: "f9587645cea5298d5eb20649f58a83cc53c9efa7d57b0716449a39f366a74986",
            ARM: "c94571e1225e54e9444f8e8c47987932194fa4ab45ce96dc4de4fe5dfcc89afa",
        },
    ),
)
_WHEELS = "/opt/wheels"
#: What Horovod imports at run time.
_NEEDS = "cloudpickle psutil pyyaml packaging"


def stages(wanted: Wanted) -> list[str]:
    """The stage that compiles, and the last one, which installs its wheel."""
    pip = f"{ENVIRONMENT}/bin/pip"
    packages = "g++ make python3-dev" if wanted.system_python else "g++ make"
    flags = f" -O2 -march={wanted.march}" if wanted.march else ""
    why = [
        f"Horovod {HOROVOD}, its last release, is of 2023: edited for later versions of PyTorch, TensorFlow "
        "and Python. It is compiled with MPI and Gloo, without NCCL: tensors on GPUs pass through the memory "
        "of the host."
    ]
    if flags:
        why.append(f"{flags.strip()}: for the site's processors, {wanted.why['cpu']}.")
    settings = _settings(wanted, flags)
    exported = " ".join(f'{name}="{value}"' for name, value in settings.items())
    pins = " ".join(shlex.quote(each.pinned()) for each in _TOOLS)
    compile_steps: tuple[str, ...] = (
        *CERTIFICATES,
        run(
            commands=(
                "export DEBIAN_FRONTEND=noninteractive",
                "apt-get update",
                f"apt-get install -y --no-install-recommends {packages}",
            ),
        ),
        run(
            why=tuple(why),
            commands=(
                f"echo 'horovod=={HOROVOD} --hash=sha256:{_SOURCE}' > /tmp/source.txt",
                f"printf '%s\\n' {pins} > /tmp/tools.txt",
                f"{pip} install --no-cache-dir --require-hashes -r /tmp/tools.txt",
                f"{pip} download --no-deps --no-build-isolation --no-binary=:all: --require-hashes -d /tmp "
                "-r /tmp/source.txt",
                f"tar -xzf /tmp/horovod-{HOROVOD}.tar.gz -C /tmp",
                f"cd /tmp/horovod-{HOROVOD}",
                *_edits(wanted),
                f"{pip} install --no-cache-dir {_NEEDS}",
                f"export {exported}",
                f"{ENVIRONMENT}/bin/python setup.py --quiet bdist_wheel --dist-dir {_WHEELS}",
            ),
            network=True,
        ),
    )
    return [
        stage(base="environment", name="horovod", steps=compile_steps),
        stage(base="environment", steps=_installed(wanted)),
    ]


def _settings(wanted: Wanted, flags: str) -> dict[str, str]:
    """Environment variables of the compilation."""
    framework, other = ("TENSORFLOW", "PYTORCH") if _is_tensorflow(wanted) else ("PYTORCH", "TENSORFLOW")
    return {
        f"HOROVOD_WITH_{framework}": "1",
        f"HOROVOD_WITHOUT_{other}": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
        "HOROVOD_WITH_MPI": "1",
        "HOROVOD_WITH_GLOO": "1",
        "HOROVOD_CMAKE": f"{ENVIRONMENT}/bin/cmake",
        "MAKEFLAGS": "-j$(nproc)",
        "CXXFLAGS": f"{CXXFLAGS}{flags}",
        "LDFLAGS": f"-Wl,-rpath,{MPI_PREFIX}/lib -Wl,--strip-debug",
    }


def _installed(wanted: Wanted) -> tuple[str, ...]:
    """The steps that install the wheel."""
    pip = f"{ENVIRONMENT}/bin/pip"
    install = f"{pip} install --no-cache-dir {_WHEELS}/*.whl {_NEEDS}"
    last: tuple[str, ...] = (
        *CERTIFICATES,
        run(commands=(install,), network=True, mounts=(("horovod", _WHEELS),)),
    )
    version = _version(wanted, "tensorflow")
    if _is_tensorflow(wanted) and numbers(version)[:2] >= (2, 16):
        keras = ".".join(map(str, numbers(version)[:2]))
        last = (
            *last,
            run(
                why=("Horovod cannot use Keras 3: it trains with the former Keras.",),
                commands=(f"{pip} install --no-cache-dir tf-keras~={keras}.0",),
                network=True,
            ),
            env({"TF_USE_LEGACY_KERAS": "1"}),
        )
    return last


def _is_tensorflow(wanted: Wanted) -> bool:
    names = wanted.listed.packages if wanted.listed is not None else {}
    if wanted.release is not None:
        return wanted.release.requirement.startswith("tensorflow")
    return any(name.startswith("tensorflow") for name in names)


def _version(wanted: Wanted, framework: str) -> str:
    """Of the framework, "" where it is not known."""
    return next((version for name, version in _versions(wanted).items() if name.startswith(framework)), "")


def _versions(wanted: Wanted) -> dict[str, str]:
    versions = dict(wanted.listed.packages) if wanted.listed is not None else {}
    if wanted.release is not None:
        name, _, version = wanted.release.requirement.partition("==")
        versions[name.partition("[")[0]] = version
    return versions


def _edits(wanted: Wanted) -> list[str]:
    """Commands that edit the source; each fails where the text is missing."""
    program = (
        "import sys; name, old, new = sys.argv[1:]; text = open(name).read(); assert old in text, name; "
        'open(name, "w").write(text.replace(old, new))'
    )
    edits = [f'edit() {{ python3 -c {shlex.quote(program)} "$@"; }}']
    return edits + [" ".join(map(shlex.quote, ("edit", *each))) for each in horovod_edits(_versions(wanted))]
