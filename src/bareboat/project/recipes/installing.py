"""How the packages of a recipe are installed: from a lock file as it is, or by name. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from msgspec import Struct, field

from bareboat.project.recipes.catalogue import PDM, PIPENV, POETRY, UV
from bareboat.project.recipes.document import Arg, Copy, Env, Run, Stage, Step, Workdir
from bareboat.project.recipes.listed import Listed
from bareboat.project.recipes.wanted import Wanted
from bareboat_base.versions import numbers

#: The environment of the image's Python, and that of programs which only install.
ENVIRONMENT, TOOLS = "/opt/env", "/opt/tools"
#: Where the project's files are.
APP = "/app"

_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
#: pip and uv use the system's certificates, which a secret of the build can replace.
CERTIFICATES: tuple[Step, ...] = (
    Arg(name="PIP_CERT", value=_BUNDLE, internal=True),
    Arg(name="SSL_CERT_FILE", value=_BUNDLE, internal=True),
)
_PIP = f"{TOOLS}/bin/pip install --no-cache-dir"
#: Images that bring one program each, by their tags: conda's installers are in no package index.
_PIXI = "ghcr.io/prefix-dev/pixi:0.63.2"
_MICROMAMBA = "docker.io/mambaorg/micromamba:2.3.0"


class Installation(Struct, frozen=True, kw_only=True):
    """`python`: the environment uses the system's Python; `apt`: Debian's packages; `tools`: commands that
    install programs into TOOLS; `images`: other images from which files are copied."""

    steps: tuple[Step, ...] = ()
    python: bool = False
    apt: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    tools_why: tuple[str, ...] = ()
    stages: tuple[Stage, ...] = ()
    images: Mapping[str, str] = field(default_factory=dict)
    needs_git: bool = False


def install(wanted: Wanted) -> Installation:
    """The steps that install the project's packages, or the framework."""
    listed = wanted.listed
    if listed is None:
        return _named(wanted)
    how = {
        "uv": _uv, "pylock": _pylock, "poetry": _poetry, "pdm": _pdm, "pipenv": _pipenv,
        "requirements": _requirements, "frozen": _frozen, "inline": _frozen, "project": _project,
        "pixi": _pixi, "conda-lock": _conda, "conda-explicit": _conda, "conda": _conda,
        "renv": _renv, "julia": _julia,
    }  # fmt: skip
    return how[listed.kind](wanted, listed)


# -- Python ----------------------------------------------------------------------------------------


def _named(wanted: Wanted) -> Installation:
    """The framework and what the script imports."""
    release = wanted.release
    if release is None and not wanted.packages:
        return Installation(python=True, steps=(_venv(wanted), _path()))
    steps: list[Step] = [_venv(wanted), *CERTIFICATES]
    if release is not None:
        why = [f"{release.requirement}: {wanted.why['cuda']}."] if wanted.why["cuda"] else []
        index = ""
        if release.index:
            # The index has this framework and the packages that it requires.
            steps.append(
                Arg(
                    name="FRAMEWORK_INDEX",
                    value=release.index,
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
            Run(
                why=tuple(why),
                commands=(f"{_env_pip()}{index} {shlex.quote(release.requirement)}",),
                network=True,
            )
        )
    if wanted.packages:
        words = " ".join(map(shlex.quote, wanted.packages))
        steps.append(Run(commands=(f"{_env_pip()} {words}",), network=True))
    return Installation(python=True, steps=(*steps, _path()))


def _uv(wanted: Wanted, listed: Listed) -> Installation:
    """uv installs what the lock file names, and resolves nothing."""
    sync = f"{TOOLS}/bin/uv sync --frozen --no-dev"
    steps: list[Step] = [
        Workdir(path=APP),
        *_uv_settings(wanted),
        Copy(
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
            Copy(files=(".",), target=f"{APP}/", why=("The project is a package of its own.",)),
            _uv_run(f"{sync} --no-editable"),
        ]
    return _by_uv(listed, (*steps, *_added(wanted), _path()))


def _pylock(wanted: Wanted, listed: Listed) -> Installation:
    steps = (
        Workdir(path=APP),
        *_uv_settings(wanted),
        Copy(files=(listed.file,), target=f"{APP}/", why=(f"{listed.file} is installed as it is.",)),
        _uv_run(
            f'{TOOLS}/bin/uv venv --python "$UV_PYTHON" {ENVIRONMENT}',
            f"{TOOLS}/bin/uv pip sync --python {ENVIRONMENT}/bin/python {listed.file}",
        ),
        *_added(wanted),
        _path(),
    )
    return _by_uv(listed, steps)


def _by_uv(listed: Listed, steps: tuple[Step, ...]) -> Installation:
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


def _uv_settings(wanted: Wanted) -> tuple[Step, ...]:
    return (
        *CERTIFICATES,
        Arg(name="UV_PROJECT_ENVIRONMENT", value=ENVIRONMENT, internal=True),
        Arg(
            name="UV_PYTHON",
            value=wanted.program,
            internal=True,
            why=("uv uses the Python of the image and downloads none.",),
        ),
        Arg(name="UV_PYTHON_DOWNLOADS", value="never", internal=True),
        Arg(name="UV_LINK_MODE", value="copy", internal=True),
        Arg(name="UV_NO_CACHE", value="1", internal=True),
    )


def _uv_run(*commands: str) -> Run:
    return Run(commands=commands, network=True, mounts=(("tools", TOOLS),))


def _poetry(wanted: Wanted, listed: Listed) -> Installation:
    root = "" if listed.builds else " --no-root"
    return _by_tool(
        wanted, listed, POETRY, f"poetry install --no-interaction --only main{root}", "pyproject.toml"
    )


def _pdm(wanted: Wanted, listed: Listed) -> Installation:
    own = "" if listed.builds else " --no-self"
    return _by_tool(
        wanted, listed, PDM, f"pdm sync --prod --no-editable{own}", "pyproject.toml",
        before=(f'pdm use --ignore-remembered -f {ENVIRONMENT}/bin/python',),
    )  # fmt: skip


def _pipenv(wanted: Wanted, listed: Listed) -> Installation:
    return _by_tool(wanted, listed, PIPENV, "pipenv sync", "Pipfile")


def _by_tool(
    wanted: Wanted, listed: Listed, tool: str, command: str, companion: str, before: tuple[str, ...] = ()
) -> Installation:
    """A program that installs its own lock file into the active environment."""
    name = tool.partition("==")[0]
    files = (".",) if listed.builds else (companion, listed.file)
    active = f"export VIRTUAL_ENV={ENVIRONMENT} PATH={ENVIRONMENT}/bin:$PATH:{TOOLS}/bin"
    steps = (
        _venv(wanted),
        Workdir(path=APP),
        *CERTIFICATES,
        Copy(
            files=files,
            target=f"{APP}/",
            why=(f"{listed.file} is installed as it is; {name} checks each digest.",),
        ),
        Run(commands=(active, *before, command), network=True, mounts=(("tools", TOOLS),)),
        *_added(wanted),
        _path(),
    )
    return Installation(
        python=True,
        steps=steps,
        tools=(f"{_PIP} {tool}",),
        tools_why=(f"{name} installs {listed.file}. The image does not keep it.",),
        needs_git=listed.needs_git,
    )


def _requirements(wanted: Wanted, listed: Listed) -> Installation:
    if listed.hashed:
        why = f"{listed.file} is installed as it is: each package has its digest."
        command = f"{_env_pip()} --require-hashes -r {shlex.quote(listed.file)}"
    else:
        why = f"{listed.file} has no digests: `uv pip compile --generate-hashes` adds them."
        command = f"{_env_pip()} -r {shlex.quote(listed.file)}"
    if listed.builds:
        why = f"{listed.file} installs packages of the project. {why}"
    steps = (
        _venv(wanted),
        Workdir(path=APP),
        *CERTIFICATES,
        Copy(files=(".",), target=f"{APP}/", why=(why,))
        if listed.builds
        else Copy(files=(listed.file,), target=f"{APP}/{listed.file}", why=(why,)),
        Run(commands=(command,), network=True),
        *_added(wanted),
        _path(),
    )
    return Installation(python=True, steps=steps, needs_git=listed.needs_git)


def _frozen(wanted: Wanted, listed: Listed) -> Installation:
    """The packages of an environment, with their versions; or those that a script names itself."""
    lines = [shlex.quote(line) for line in listed.text.splitlines()]
    alone = "" if listed.kind == "inline" else " --no-deps"
    tag = listed.packages.get("torch", "").partition("+")[2]
    index = ""
    more: tuple[Arg, ...] = ()
    if tag:
        index = ' --extra-index-url "$FRAMEWORK_INDEX"'
        more = (
            Arg(
                name="FRAMEWORK_INDEX",
                value=f"https://download.pytorch.org/whl/{tag}",
                why=(f"PyTorch's own index has the builds with +{tag}.",),
            ),
        )
    steps = (
        _venv(wanted),
        *CERTIFICATES,
        *more,
        Run(
            why=(
                f"The packages that {listed.file} names."
                if listed.kind == "inline"
                else f"The packages of {listed.file}, with the versions that are installed there.",
            ),
            commands=(
                "printf '%s\\n' \\\n      " + " \\\n      ".join(lines) + " > /tmp/requirements.txt",
                f"{_env_pip()}{alone}{index} -r /tmp/requirements.txt",
                "rm /tmp/requirements.txt",
            ),
            network=True,
        ),
        *_added(wanted),
        _path(),
    )
    return Installation(python=True, steps=steps, needs_git=listed.needs_git)


def _project(wanted: Wanted, listed: Listed) -> Installation:
    """A project without a lock file."""
    steps: list[Step] = [_venv(wanted), Workdir(path=APP), *CERTIFICATES]
    if listed.builds:
        steps += [
            Copy(
                files=(".",),
                target=f"{APP}/",
                why=("The project and what it requires, without a lock file.",),
            ),
            Run(commands=(f"{_env_pip()} {APP}",), network=True),
        ]
    elif listed.packages:
        old = numbers(wanted.python) < (3, 11)
        module = "tomli as tomllib" if old else "tomllib"
        program = (
            f"import sys, {module}; data = tomllib.load(open(sys.argv[1], 'rb')); "
            "print(*data['project']['dependencies'], sep='\\n')"
        )
        steps += [
            Copy(files=("pyproject.toml",), target=f"{APP}/"),
            Run(
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
    return Installation(python=True, steps=(*steps, *_added(wanted), _path()), needs_git=listed.needs_git)


def _venv(wanted: Wanted) -> Run:
    if wanted.inherits:
        return Run(
            why=("The environment sees the packages of the base.",),
            commands=(f"{wanted.program} -m venv --system-site-packages {ENVIRONMENT}",),
        )
    return Run(commands=(f"{wanted.program} -m venv {ENVIRONMENT}",))


def _env_pip() -> str:
    return f"{ENVIRONMENT}/bin/pip install --no-cache-dir"


def _added(wanted: Wanted) -> tuple[Step, ...]:
    """What was asked for beside the list."""
    if not wanted.packages:
        return ()
    words = " ".join(map(shlex.quote, wanted.packages))
    command = f"{TOOLS}/bin/pip --python {ENVIRONMENT}/bin/python install --no-cache-dir {words}"
    return (Run(commands=(command,), network=True, mounts=(("tools", TOOLS),)),)


def _path() -> Env:
    return Env(values={"VIRTUAL_ENV": ENVIRONMENT, "PATH": f"{ENVIRONMENT}/bin:$PATH"})


# -- conda, R, Julia -------------------------------------------------------------------------------


def _pixi(_wanted: Wanted, listed: Listed) -> Installation:
    manifest, prefix = "pixi.toml", f"{APP}/.pixi/envs/default"
    steps = (
        Workdir(path=APP),
        Copy(files=("/usr/local/bin/pixi",), target="/usr/local/bin/pixi", source="pixi"),
        Copy(
            files=(manifest, listed.file),
            target=f"{APP}/",
            why=(f"{listed.file} is installed as it is: --frozen resolves nothing. Not tested by Bareboat.",),
        ),
        Run(commands=(f"PIXI_CACHE_DIR=/tmp/pixi pixi install --frozen --manifest-path {manifest}",
                      "rm -rf /tmp/pixi"), network=True),
        Env(values={"CONDA_PREFIX": prefix, "PATH": f"{prefix}/bin:$PATH"}),
    )  # fmt: skip
    return Installation(steps=steps, images={"pixi": _PIXI})


def _conda(_wanted: Wanted, listed: Listed) -> Installation:
    why = {
        "conda": f"{listed.file} fixes no builds: `conda-lock -p linux-64` writes a lock file.",
        "conda-lock": f"{listed.file} is installed as it is.",
        "conda-explicit": f"{listed.file} is installed as it is: it names each file.",
    }[listed.kind]
    steps = (
        Copy(files=("/bin/micromamba",), target="/usr/local/bin/micromamba", source="micromamba"),
        Copy(
            files=(listed.file,),
            target=f"{APP}/{listed.file}",
            why=(f"{why} Not tested by Bareboat.",),
        ),
        Run(
            commands=(
                "export MAMBA_ROOT_PREFIX=/tmp/mamba",
                f"micromamba create --yes --prefix {ENVIRONMENT} --file {APP}/{listed.file}",
                "rm -rf /tmp/mamba",
            ),
            network=True,
        ),
        Env(values={"CONDA_PREFIX": ENVIRONMENT, "PATH": f"{ENVIRONMENT}/bin:$PATH"}),
    )
    return Installation(steps=steps, images={"micromamba": _MICROMAMBA})


def _renv(wanted: Wanted, listed: Listed) -> Installation:
    version = listed.packages.get("renv", "")
    install = f'remotes::install_version("renv", "{version}", repos = Sys.getenv("CRAN"))' if version else (
        'install.packages("renv", repos = Sys.getenv("CRAN"))'
    )  # fmt: skip
    steps = (
        Workdir(path=APP),
        *CERTIFICATES,
        Arg(name="CRAN", value="https://cloud.r-project.org"),
        Copy(
            files=(listed.file,),
            target=f"{APP}/",
            why=(f"renv installs {listed.file} as it is. Not tested by Bareboat.",),
        ),
        Env(values={"RENV_PATHS_LIBRARY": "/opt/renv", "RENV_CONFIG_CACHE_ENABLED": "FALSE"}),
        Run(
            commands=(
                "Rscript -e 'install.packages(\"remotes\", repos = Sys.getenv(\"CRAN\"))' -e "
                + shlex.quote(install),
                "Rscript -e 'renv::restore(lockfile = \"renv.lock\", prompt = FALSE)'",
            ),
            network=True,
        ),
        Env(values={"R_LIBS": "/opt/renv"}),
    )  # fmt: skip
    apt: tuple[str, ...] = (
        "g++",
        "gcc",
        "gfortran",
        "libcurl4-openssl-dev",
        "libssl-dev",
        "libxml2-dev",
        "make",
    )
    if "rocker/" not in wanted.base:
        apt = (*apt, "r-base-core", "r-base-dev")
    return Installation(steps=steps, apt=apt)


def _julia(wanted: Wanted, listed: Listed) -> Installation:
    targets = "generic;sandybridge,-xsaveopt,clone_all;haswell,-rdrnd,base(1);x86-64-v4,-rdrnd,base(1)"
    steps = (
        Workdir(path=APP),
        Env(
            values={"JULIA_DEPOT_PATH": "/opt/julia:", "JULIA_PROJECT": APP},
            why=("Packages are below /opt: engines hide the home of the image.",),
        ),
        Arg(
            name="JULIA_CPU_TARGET",
            value=targets if wanted.machine == "x86_64" else "generic",
            why=("Precompiled for any node, and not for the machine that builds.",),
        ),
        Copy(
            files=("Project.toml", "Manifest.toml"),
            target=f"{APP}/",
            why=(f"{listed.file} is installed as it is. Not tested by Bareboat.",),
        ),
        Run(commands=("julia -e 'using Pkg; Pkg.instantiate(); Pkg.precompile()'",), network=True),
    )  # fmt: skip
    return Installation(steps=steps)
