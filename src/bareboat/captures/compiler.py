"""The host's C and C++ compiler, for environments that compile at run time: torch.compile, Triton,
DeepSpeed's operators, extensions that are built on first use; and programs of the CUDA toolkit for XLA.

GCC prints the paths of its parts: https://gcc.gnu.org/onlinedocs/gcc/Developer-Options.html
(-print-prog-name, -print-file-name, -v). clang supports the same options, and -print-resource-dir for its own
headers; it links with the start files and libraries of a GCC that it finds, or with its own.
"""

from __future__ import annotations

import os
import re
import shlex

from bareboat.captures.collect import shown
from bareboat.captures.interpreter import Interpreter
from bareboat_base import execute
from bareboat_base.errors import UsageError
from bareboat_base.expressions import expression

#: Names on PATH, also with the machine's triplet as a prefix, which Debian's Python uses. PyTorch hashes its
#: headers with openssl before it compiles.
_PROGRAMS = ("gcc", "g++", "cc", "c++", "cpp", "as", "ld", "ld.bfd", "ld.gold", "ar", "nm", "ranlib", "strip",
             "objcopy", "gcc-ar", "make", "openssl")  # fmt: skip
_CLANG = ("clang", "clang++", "lld", "ld.lld", "llvm-ar")
_PARTS = ("cc1", "cc1plus", "collect2", "lto-wrapper", "lto1", "as", "ld")
_FILES = (
    "crt1.o", "Scrt1.o", "rcrt1.o", "gcrt1.o", "crti.o", "crtn.o", "libc.so", "libc_nonshared.a", "libm.so",
    "libmvec.so", "libmvec.so.1", "libm.a", "libc.a", "libdl.so", "libdl.a", "libpthread.so", "libpthread.a",
    "libpthread_nonshared.a", "librt.so", "librt.a", "libutil.so", "libutil.a", "libresolv.so", "libgcc_s.so",
    "libgcc_s.so.1", "libstdc++.so", "libgomp.so", "libgomp.so.1", "libatomic.so", "libatomic.so.1",
)  # fmt: skip
#: Entries of the compiler's own directory for other languages and for sanitizers.
_OTHER = expression(
    r"f951|gnat1|go1|d21|cc1obj.*|cc1gm2|adalib|adainclude|finclude|install-tools|plugin|lib.*san.*"
)
_SEARCHED = expression(r"#include <\.\.\.> search starts here:\n(?P<paths>.*?)End of search list", re.DOTALL)
#: The assembler and linker that XLA uses, and other files that NVIDIA's compiler needs.
_CUDA = (
    "bin/ptxas",
    "bin/nvlink",
    "bin/fatbinary",
    "bin/nvdisasm",
    "bin/cuobjdump",
    "nvvm/bin",
    "nvvm/libdevice",
)


def paths(interpreter: Interpreter) -> list[str]:
    """The files and directories to add. Raises UsageError if no compiler is installed."""
    chosen = _chosen()
    found = [chosen, *_on_path(chosen)]
    found += [place for name in _PARTS if (place := _ask(chosen, f"-print-prog-name={name}")).startswith("/")]
    if _is_clang(chosen):
        found.append(_ask(chosen, "-print-resource-dir"))
    own = os.path.dirname(_ask(chosen, "-print-libgcc-file-name"))
    if not os.path.isdir(own):
        raise UsageError(
            f"the compiler {shown(chosen)} does not report where its files are",
            remedy=f"{shlex.quote(chosen)} -print-libgcc-file-name  # GCC and clang answer with a path",
        )
    found += [f"{own}/{name}" for name in sorted(os.listdir(own)) if not _OTHER.fullmatch(name)]
    found += [place for name in _FILES if (place := _ask(chosen, f"-print-file-name={name}")).startswith("/")]
    for language in ("c", "c++"):
        asked = execute.run(
            [chosen, f"-x{language}", "-E", "-v", "-"],
            stdin="",
            environment=_environment(),
            timeout_s=execute.patience(execute.START_S),
        )
        if asked.ok and (told := _SEARCHED.search(asked.stderr)):
            found += [line.strip() for line in told["paths"].splitlines()]
    minor = ".".join(interpreter.version.split(".")[:2])
    found += [f"{interpreter.base_prefix}/include/python{minor}{suffix}" for suffix in ("", "t")]
    found += _cuda()
    return [path for path in dict.fromkeys(map(os.path.normpath, found)) if os.path.exists(path)]


def folder() -> str:
    """The directory of the compiler, for the image's PATH."""
    return os.path.dirname(_chosen())


def variables() -> dict[str, str]:
    """Environment variables of the image: PyTorch and others use GCC unless CC and CXX are set."""
    chosen = _chosen()
    if not _is_clang(chosen):
        return {}
    place, name = os.path.split(chosen)
    other = os.path.join(place, name.replace("clang", "clang++", 1))
    return {"CC": chosen} | ({"CXX": other} if os.path.exists(other) else {})


def _is_clang(compiler: str) -> bool:
    return "clang" in os.path.basename(compiler)


def _chosen() -> str:
    """The compiler in CC if it is GCC or clang, otherwise the first one on PATH that is not ccache. A site's
    wrapper (`cc` of Cray) is not used."""
    try:
        asked = [word for word in shlex.split(os.environ.get("CC", "")) if os.path.basename(word) != "ccache"]
    except ValueError:  # an unclosed quotation
        asked = []
    named = [asked[0]] if asked and re.search(r"(gcc|clang)(-[\d.]+)?$", asked[0]) else []
    for name in (*named, "gcc", "clang"):
        for place in os.environ.get("PATH", os.defpath).split(":"):
            path = os.path.join(place, name)
            real = os.path.realpath(path)
            if os.path.isfile(path) and os.access(path, os.X_OK) and "ccache" not in os.path.basename(real):
                return os.path.abspath(path)
    raise UsageError(
        "capture.compiler asks for this machine's C compiler, and neither gcc nor clang is on PATH",
        remedy="module load gcc; or install gcc and g++; or leave capture.compiler out",
    )


def _on_path(compiler: str) -> list[str]:
    machine = _ask(compiler, "-dumpmachine")
    names = [*_PROGRAMS, *(f"{machine}-{name}" for name in _PROGRAMS)]
    if _is_clang(compiler):
        names += [*_CLANG, os.path.basename(compiler).replace("clang", "clang++", 1)]
    search = f"{os.path.dirname(compiler)}:{os.environ.get('PATH', os.defpath)}"
    found = [execute.which(name, path=search) for name in names]
    return [path for path in found if path is not None and "ccache" not in os.path.realpath(path)]


def _ask(compiler: str, question: str) -> str:
    asked = execute.run(
        [compiler, question], environment=_environment(), timeout_s=execute.patience(execute.START_S)
    )
    return asked.stdout.strip() if asked.ok else ""


def _environment() -> dict[str, str]:
    """English messages, and no search directories from environment variables of this shell."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


def _cuda() -> list[str]:
    """The files of the CUDA toolkit, if it is installed."""
    nvcc = execute.which("nvcc")
    places = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"),
              os.path.dirname(os.path.dirname(nvcc)) if nvcc else None, "/usr/local/cuda"]  # fmt: skip
    top = next((place for place in places if place and os.path.isfile(f"{place}/bin/ptxas")), None)
    return [] if top is None else [f"{top}/{name}" for name in _CUDA]
