"""The modules that a job's Python script imports for certain, and that its container does not have.

Of what cannot be known by names of files alone, nothing is said: code of the environment that finds modules,
PYTHONPATH that is set at the start, and all that follows the first import of a module of the script's own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from bareboat import commands, python_source, registry
from bareboat.model import AbsentModule, Image, Job
from bareboat.plan import sweep
from bareboat.plan.process import command_of, image_workdir
from bareboat.program_analysis.command import Sight, candidates
from bareboat.program_analysis.executable import sight_of
from bareboat_base.expressions import expression
from bareboat_base.files import untrusted
from bareboat_base.paths import DEFAULT_PATH, lies_in
from bareboat_images.store import Store

_LIBRARY = expression(r"python3\.\d+t?")
_MOST_BYTES = 1 << 16
#: Lines of code in .pth files that add no module: of virtualenv, setuptools, and namespace packages.
_HARMLESS = expression(r"_virtualenv\.pth|distutils-precedence\.pth|.*-nspkg\.pth")
_CHANGES_PATH = expression(r"\b(?:sys|site|importlib|pkgutil)\b")
#: Packages whose import makes other modules importable.
_MAKES_OTHERS = expression(
    r"(?i)clr\w*|pythonnet|pyximport|hy|cppyy|bpy|pkg_resources|sage|paraview|future"
    r"|.*(?:root|path|findspark|notebook|ipynb|jpype|jnius|java).*"
)


def absent(store: Store, image: Image, job: Job) -> tuple[AbsentModule, ...]:
    """What the script of a job imports for certain and no place has; nothing where that is not known."""
    environment = {**image.environment, **sweep.fixed_environment(job)}
    if _is_open(job, image, environment) or (sight := sight_of(store, image, job)) is None:
        return ()
    workdir = image_workdir(image) if job.workdir is None else job.workdir
    argv = command_of(job, image)
    words = [word if isinstance(word, str) else "" for word in sweep.words(argv, len(job.command), job)]
    started, script = commands.program(words), commands.file(words)
    before = words[: len(words) - len(started)]
    if (
        script is None
        or not commands.is_python(started[0])
        or any(each.startswith("PYTHON") for each in before)
    ):
        return ()
    path = environment.get("PATH") or DEFAULT_PATH
    python = next((each for each in map(os.path.normpath, candidates(started[0], path, workdir))
                   if sight.find(each) is not None), None)  # fmt: skip
    node = sight.find(os.path.join(workdir, script))
    if python is None or node is None or node.place is None or _is_other_machine(job, python):
        return ()
    given = [os.path.join(workdir, each) for each in environment.get("PYTHONPATH", "").split(":") if each]
    installed = _installed(python, sight)
    try:
        source = python_source.parse(untrusted.read_bytes(node.place, limit=python_source.LARGEST))
    except OSError:
        return ()
    if installed is None:
        return ()
    own = {name for folder in (os.path.dirname(node.path), *given) for name in _names(sight, folder)}
    shown = os.path.relpath(node.path, workdir) if lies_in(node.path, workdir) else node.path
    return tuple(_absent(source, installed, own, shown))


def _absent(
    source: python_source.Source, installed: frozenset[str], own: set[str], file: str
) -> Iterator[AbsentModule]:
    seen: set[str] = set()
    for each in source.imports:
        if not each.is_certain:
            continue
        if each.level or each.package in own:  # what its own modules do is not known
            return
        if each.package not in seen | installed:
            same = each.package if each.package in _SAME_NAMES else ""
            yield AbsentModule(each.package, file, each.line, OTHER_NAMES.get(each.package, same))
        seen.add(each.package)
        if _MAKES_OTHERS.fullmatch(each.package):
            return


def _is_open(job: Job, image: Image, environment: dict[str, str]) -> bool:
    """Whether modules may come from places that are not known before the start."""
    return bool(
        job.modules
        or job.site_layer
        or image.site_layer is not None
        or job.scheduling.after  # an earlier job may write them
        or {"PYTHONHOME", "PYTHONPLATLIBDIR", "PYTHONNOUSERSITE", "PYTHONUSERBASE"} & job.environment.keys()
        or "PYTHONPATH" in job.environment.keys() - environment.keys()
        or "$" in environment.get("PYTHONPATH", "")
        or not {"-h", "--help", "--version", "--helpfull"}.isdisjoint(job.command)
    )


def _is_other_machine(job: Job, python: str) -> bool:
    is_system = os.path.dirname(python) in ("/usr/bin", "/bin", "/usr/local/bin")
    return registry.is_queued(job.scheduler) and not registry.contains(job.engine) and is_system


def _installed(python: str, sight: Sight) -> frozenset[str] | None:
    """The names of modules that a Python finds, by its standard library and its directories of packages; None
    where that depends on code, or is not seen. https://docs.python.org/3/library/site.html"""
    node = sight.find(python)
    if node is None:
        return None
    venv, settings = os.path.dirname(os.path.dirname(python)), _settings(python, sight)
    bases = [os.path.dirname(os.path.dirname(node.path))]
    bases += [os.path.dirname(settings["home"])] if settings.get("home") else []
    libraries = [each for base in bases for each in _libraries(base, sight)]
    if not any(sight.find(f"{each}/os.py") for each in libraries):
        return None
    prefixes = [venv] if settings else []
    if settings.get("include-system-site-packages", "true").lower() == "true":
        prefixes += [*bases, *(["/usr/local"] if "/usr" in bases else ())]
    versions = {os.path.basename(each) for each in libraries}
    sites = [
        f"{each}/{kind}"
        for prefix in prefixes
        for each in (*_libraries(prefix, sight, versions), f"{prefix}/lib/python3")
        for kind in ("site-packages", "dist-packages")
    ]
    places = [*libraries, *(f"{each}/lib-dynload" for each in libraries), *sites]
    for folder in sites:
        for entry in sight.names(folder):
            if not entry.endswith(".pth") or entry.startswith(".") or _HARMLESS.fullmatch(entry):
                continue
            for line in map(str.strip, _lines(sight, f"{folder}/{entry}")):
                if line.startswith(("import ", "import\t")):
                    return None
                if line and not line.startswith("#"):
                    places.append(os.path.normpath(os.path.join(folder, line)))
    found = {name for folder in places for name in _names(sight, folder)}
    customised = (f"{folder}/{name}.py" for name in ("sitecustomize", "usercustomize") for folder in places)
    if any(_CHANGES_PATH.search("\n".join(_lines(sight, each))) for each in customised):
        return None
    kinds = {node.kind for node in map(sight.find, places) if node is not None}
    return frozenset(found | sys.stdlib_module_names | {"distutils"}) if kinds == {"folder"} else None


def _settings(python: str, sight: Sight) -> dict[str, str]:
    """The settings of the virtual environment of a Python; nothing for another Python."""
    folder = os.path.dirname(python)
    lines = (
        line for each in (folder, os.path.dirname(folder)) for line in _lines(sight, f"{each}/pyvenv.cfg")
    )
    fields = (line.partition("=") for line in lines)
    return {name.strip().lower(): value.strip() for name, _, value in fields}


def _libraries(prefix: str, sight: Sight, versions: set[str] | None = None) -> Iterator[str]:
    for lib in ("lib", "lib64"):
        for name in sight.names(f"{prefix}/{lib}"):
            if _LIBRARY.fullmatch(name) and (versions is None or name in versions):
                yield f"{prefix}/{lib}/{name}"


def _names(sight: Sight, folder: str) -> set[str]:
    """The names of modules that a directory may have."""
    return {entry.partition(".")[0] for entry in sight.names(folder)}


def _lines(sight: Sight, path: str) -> list[str]:
    node = sight.find(path)
    if node is None or node.kind != "file" or node.place is None:
        return []
    try:
        return untrusted.read_bytes(node.place, limit=_MOST_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []


#: Import name -> the package's name, where they differ; "" where several packages share the name.
OTHER_NAMES = {
    "sklearn": "scikit-learn", "yaml": "PyYAML", "PIL": "Pillow", "cv2": "opencv-python-headless",
    "skimage": "scikit-image", "bs4": "beautifulsoup4", "attr": "attrs", "dateutil": "python-dateutil",
    "ignite": "pytorch-ignite", "distributed": "distributed", "OpenSSL": "pyOpenSSL", "git": "GitPython",
    "pytorch_lightning": "pytorch-lightning", "torch_geometric": "torch-geometric", "absl": "absl-py",
    "google": "", "Bio": "biopython", "mpl_toolkits": "matplotlib", "pkg_resources": "setuptools",
    "dotenv": "python-dotenv", "hydra": "hydra-core", "umap": "umap-learn", "zmq": "pyzmq",
    "huggingface_hub": "huggingface-hub", "distutils": "setuptools", "cgi": "legacy-cgi",
    "sentence_transformers": "sentence-transformers", "tensorflow_datasets": "tensorflow-datasets",
}  # fmt: skip
#: Packages that are imported by the name by which pip installs them.
_SAME_NAMES = frozenset(
    """accelerate albumentations altair ase astropy awkward bokeh boto3 click dask datasets deepspeed
    diffusers dill einops emcee evaluate fire flask flax fsspec gensim h5py imageio iminuit
    ipykernel jax jaxlib jinja2 joblib jsonschema keras lightgbm lightning lmfit loguru lxml
    matplotlib meshio mne mpi4py msgspec natsort netCDF4 networkx nibabel nltk numba numpy omegaconf
    onnx onnxruntime openpyxl optax optuna orjson pandas peft plotly polars psutil pyarrow pydantic
    pymatgen pysam pytest ray rdkit requests rich safetensors scipy seaborn sentencepiece spacy
    statsmodels sympy tensorboard tensorboardX tensorflow tiktoken timm tokenizers torch torchaudio
    torchmetrics torchvision tqdm transformers typer typing_extensions vllm wandb xarray xgboost
    zarr""".split()  # noqa: SIM905
)
