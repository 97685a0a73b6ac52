"""How the packages of a recipe are installed: from a lock file as it is, or by name. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from msgspec import Struct, field

from bareboat.project.recipes.catalogue import UV
from bareboat.project.recipes.dockerfile import arg, copy, env, run, workdir
from bareboat.project.recipes.lists import Listed
from bareboat.project.recipes.wanted import Wanted
from bareboat_base.versions import numbers

#: The environment of the image's Python, and that of programs which only install.
ENVIRONMENT, TOOLS = "/opt/env", "/opt/tools"
#: Where the project's files are.
APP = "/app"

_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
#: pip and uv use the system's certificates, which a secret of the build can replace.
CERTIFICATES: tuple[str, ...] = (
    arg("PIP_CERT", _BUNDLE),
    arg("SSL_CERT_FILE", _BUNDLE),
)
_PIP = f"{TOOLS}/bin/pip install --no-cache-dir"
#: Images that bring one program each, by their tags: conda's installers are in no package index.
_MICROMAMBA = "docker.io/mambaorg/micromamba:2.3.0"


class Installation(Struct, frozen=True, kw_only=True):
    """`python`: the environment uses the system's Python; `tools`: commands that install programs into
    TOOLS; `images`: other images from which files are copied."""

    steps: tuple[str, ...] = ()
    python: bool = False
    tools: tuple[str, ...] = ()
    tools_why: tuple[str, ...] = ()
    images: Mapping[str, str] = field(default_factory=dict)
    needs_git: bool = False


def install(wanted: Wanted) -> Installation:
    """The steps that install the project's packages, or the framework."""
    listed = wanted.listed
    if listed is None:
        return _named(wanted)
    how = {"uv": _uv, "requirements": _requirements, "project": _project, "conda": _conda}
    return how[listed.kind](wanted, listed)


# -- Python ----------------------------------------------------------------------------------------


def _named(wanted: Wanted) -> Installation:
    """The framework and what the script imports."""
    release = wanted.release
    if release is None and not wanted.packages:
        return Installation(python=True, steps=(_venv(), _path()))
    steps: list[str] = [_venv(), *CERTIFICATES]
    if release is not None:
        why = [f"{release.requirement}: {wanted.why['cuda']}."] if wanted.why["cuda"] else []
        index = ""
        if release.index:
            # The index has this framework and the packages that it requires.
            steps.append(
                arg(
                    "FRAMEWORK_INDEX",
                    release.index,
                    why=("The framework's own index: the usual one has only its builds for CUDA.",),
                )
            )
            index = ' --index-url "$FRAMEWORK_INDEX"'
        if wanted.why["plug-in"]:
            why.append(f"{wanted.why['plug-in']}.")
        if release.cuda:
            why.append(
                f"It brings CUDA {release.cuda}, cuDNN and NCCL as packages; the driver is the host's."
            )
        steps.append(
            run(
                why=tuple(why),
                commands=(f"{_env_pip()}{index} {shlex.quote(release.requirement)}",),
                network=True,
            )
        )
    if wanted.packages:
        words = " ".join(map(shlex.quote, wanted.packages))
        steps.append(run(commands=(f"{_env_pip()} {words}",), network=True))
    return Installation(python=True, steps=(*steps, _path()))


def _uv(_wanted: Wanted, listed: Listed) -> Installation:
    """uv installs what the lock file names, and resolves nothing."""
    sync = f"{TOOLS}/bin/uv sync --frozen --no-dev"
    steps: list[str] = [
        workdir(APP),
        *_uv_settings(),
        copy(
            files=("pyproject.toml", "uv.lock"),
            target=f"{APP}/",
            why=(
                f"{listed.file} is installed as it is: --frozen resolves nothing, and uv checks each digest.",
            ),
        ),
        _uv_run(f"{sync} --no-install-workspace"),
    ]
    if listed.builds:
        steps += [
            copy(files=(".",), target=f"{APP}/", why=("The project is a package of its own.",)),
            _uv_run(f"{sync} --no-editable"),
        ]
    return _by_uv(listed, (*steps, _path()))


def _by_uv(listed: Listed, steps: tuple[str, ...]) -> Installation:
    pin = f"echo {shlex.quote(UV.pinned())} > /tmp/uv.txt"
    return Installation(
        python=True,
        steps=steps,
        tools=(pin, f"{_PIP} --only-binary=:all: --require-hashes -r /tmp/uv.txt", "rm /tmp/uv.txt"),
        tools_why=(
            f"uv {UV.version}, pinned by SHA-256, installs {listed.file}. The image does not keep it.",
        ),
        needs_git=listed.needs_git,
    )


def _uv_settings() -> tuple[str, ...]:
    return (
        *CERTIFICATES,
        arg("UV_PROJECT_ENVIRONMENT", ENVIRONMENT),
        arg(
            "UV_PYTHON",
            "python3",
            why=("uv uses the Python of the image and downloads none.",),
        ),
        arg("UV_PYTHON_DOWNLOADS", "never"),
        arg("UV_LINK_MODE", "copy"),
        arg("UV_NO_CACHE", "1"),
    )


def _uv_run(*commands: str) -> str:
    return run(commands=commands, network=True, mounts=(("tools", TOOLS),))


def _requirements(_wanted: Wanted, listed: Listed) -> Installation:
    if listed.hashed:
        why = f"{listed.file} is installed as it is: each package has its digest."
        command = f"{_env_pip()} --require-hashes -r {shlex.quote(listed.file)}"
    else:
        why = f"{listed.file} has no digests: `uv pip compile --generate-hashes` adds them."
        command = f"{_env_pip()} -r {shlex.quote(listed.file)}"
    if listed.builds:
        why = f"{listed.file} installs packages of the project. {why}"
    steps = (
        _venv(),
        workdir(APP),
        *CERTIFICATES,
        copy(files=(".",), target=f"{APP}/", why=(why,))
        if listed.builds
        else copy(files=(listed.file,), target=f"{APP}/{listed.file}", why=(why,)),
        run(commands=(command,), network=True),
        _path(),
    )
    return Installation(python=True, steps=steps, needs_git=listed.needs_git)


def _project(wanted: Wanted, listed: Listed) -> Installation:
    """A project without a lock file."""
    steps: list[str] = [_venv(), workdir(APP), *CERTIFICATES]
    if listed.builds:
        steps += [
            copy(
                files=(".",),
                target=f"{APP}/",
                why=("The project and what it requires, without a lock file.",),
            ),
            run(commands=(f"{_env_pip()} {APP}",), network=True),
        ]
    elif listed.packages:
        old = numbers(wanted.python) < (3, 11)
        module = "tomli as tomllib" if old else "tomllib"
        program = (
            f"import sys, {module}; data = tomllib.load(open(sys.argv[1], 'rb')); "
            "print(*data['project']['dependencies'], sep='\\n')"
        )
        steps += [
            copy(files=("pyproject.toml",), target=f"{APP}/"),
            run(
                why=("The dependencies in pyproject.toml, without a lock file.",),
                commands=(
                    *((f"{_env_pip()} tomli",) if old else ()),
                    f"{ENVIRONMENT}/bin/python -c {shlex.quote(program)} pyproject.toml "
                    "> /tmp/requirements.txt",
                    f"{_env_pip()} -r /tmp/requirements.txt",
                    "rm /tmp/requirements.txt",
                ),
                network=True,
            ),
        ]
    return Installation(python=True, steps=(*steps, _path()), needs_git=listed.needs_git)


def _venv() -> str:
    return run(commands=(f"python3 -m venv {ENVIRONMENT}",))


def _env_pip() -> str:
    return f"{ENVIRONMENT}/bin/pip install --no-cache-dir"


def _path() -> str:
    return env({"VIRTUAL_ENV": ENVIRONMENT, "PATH": f"{ENVIRONMENT}/bin:$PATH"})


# -- conda -----------------------------------------------------------------------------------------


def _conda(_wanted: Wanted, listed: Listed) -> Installation:
    steps = (
        copy(files=("/bin/micromamba",), target="/usr/local/bin/micromamba", source="micromamba"),
        copy(
            files=(listed.file,),
            target=f"{APP}/{listed.file}",
            why=(f"{listed.file} fixes no builds. Not tested by Bareboat.",),
        ),
        run(
            commands=(
                "export MAMBA_ROOT_PREFIX=/tmp/mamba",
                f"micromamba create --yes --prefix {ENVIRONMENT} --file {APP}/{listed.file}",
                "rm -rf /tmp/mamba",
            ),
            network=True,
        ),
        env({"CONDA_PREFIX": ENVIRONMENT, "PATH": f"{ENVIRONMENT}/bin:$PATH"}),
    )
    return Installation(steps=steps, images={"micromamba": _MICROMAMBA})
