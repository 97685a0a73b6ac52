"""Names by which packages are imported, and those by which pip installs them. Pure."""

from __future__ import annotations

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


def installed_by(module: str) -> str:
    """What pip installs for a module; "" where that is not known."""
    return OTHER_NAMES.get(module, module if module in _SAME_NAMES else "")
