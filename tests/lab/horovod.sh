#!/usr/bin/env bash
# Builds Horovod 0.28.1 (its last release, of 2023) for PyTorch 2.13 with MPI and Gloo, on Debian 12, and
# keeps the wheel, since that takes three to six minutes on two cores. Beside the wheel lies an environment
# that has it, readable by every user. As root it installs Debian's packages where they are missing.
# Harmless when run again.
#
#   sudo tests/lab/horovod.sh [--dry-run]
#
#   PREFIX=/opt/bareboat-lab/horovod   where the wheel (in wheels/) and the environment (env/) go
#
# One build serves OpenMPI 4.1 and 5.0, whose C interface has one ABI: the C++ bindings, which 5.0 has no
# more, are compiled out, and the internal libraries of 4.1 are taken from the list of what it needs.
set -euo pipefail

prefix=${PREFIX:-/opt/bareboat-lab/horovod}
version=0.28.1
torch=2.13.0
packages=(build-essential cmake libopenmpi-dev openmpi-bin patchelf python3-dev python3-venv)

say() { printf 'horovod: %s\n' "$*" >&2; }
die() { say "$1"; [ $# -lt 2 ] || say "try: $2"; exit 1; }

main() {
  case ${1:-} in
    '') ;;
    --dry-run)
      printf 'apt-get install %s\nhorovod %s for torch %s -> %s\n' \
        "${packages[*]}" "$version" "$torch" "$prefix"
      return ;;
    *) die "unknown argument: $1" "$0 --dry-run" ;;
  esac
  umask 022
  mkdir -p "$prefix/wheels"
  if [ "$(cat "$prefix/env/.whole" 2>/dev/null || true)" = "$version torch $torch" ]; then
    return 0
  fi
  make_environment
  compgen -G "$prefix/wheels/horovod-$version-*.whl" >/dev/null || build
  pip install --no-deps "$prefix"/wheels/horovod-"$version"-*.whl
  # -I: not the folder that this was started in.
  "$prefix/env/bin/python" -I -c '
import horovod.torch as hvd
assert hvd.mpi_built() and hvd.gloo_built(), "built without MPI or without Gloo"
'
  echo "$version torch $torch" >"$prefix/env/.whole"
}

pip() { "$prefix/env/bin/pip" --quiet --disable-pip-version-check "$@"; }

make_environment() {
  local missing=() package
  for package in "${packages[@]}"; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    [ "$(id -u)" -eq 0 ] || die "missing: ${missing[*]}" "sudo apt-get install ${missing[*]}"
    say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get -o DPkg::Lock::Timeout=600 update -qq
    apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  fi
  say "installing torch $torch into $prefix/env"
  rm -rf "$prefix/env"
  /usr/bin/python3 -m venv "$prefix/env"
  # What Horovod itself needs is named here, because its wheel is installed alone.
  pip install "torch==$torch" numpy wheel cloudpickle psutil pyyaml packaging mpi4py
}

build() {
  local work
  work=$(mktemp -d)
  say "building Horovod $version; this takes minutes"
  # Later versions have lost what Horovod's setup.py asks of setuptools. PyTorch wants a later one, but only
  # to compile extensions of its own.
  local setuptools
  setuptools=$("$prefix/env/bin/python" -c 'from importlib.metadata import version; print(version("setuptools"))')
  pip install setuptools==75.8.0 2>/dev/null
  (cd "$work" && pip download --no-deps --no-binary :all: --no-build-isolation "horovod==$version")
  tar -C "$work" -xzf "$work/horovod-$version.tar.gz"
  local source=$work/horovod-$version
  # PyTorch's headers have been C++17 since 2.1.
  sed -i 's/\(CMAKE_CXX_STANDARD\) 14/\1 17/' "$source/CMakeLists.txt" "$source/horovod/torch/CMakeLists.txt"
  if ! (
    cd "$source"
    export HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1
    export HOROVOD_WITH_MPI=1 HOROVOD_WITH_GLOO=1
    MAKEFLAGS=-j$(nproc)
    export CXXFLAGS=-DOMPI_SKIP_MPICXX MAKEFLAGS
    nice "$prefix/env/bin/pip" --disable-pip-version-check wheel --no-deps --no-build-isolation \
      --wheel-dir "$work/built" .
  ) >"$work/log" 2>&1; then
    tail -40 "$work/log" >&2
    die 'Horovod does not build' "less $work/log"
  fi
  (cd "$work" && "$prefix/env/bin/python" -m wheel unpack --dest tree built/horovod-*.whl >/dev/null)
  local library
  while IFS= read -r library; do
    patchelf --remove-needed libmpi_cxx.so.40 --remove-needed libopen-rte.so.40 \
      --remove-needed libopen-pal.so.40 "$library"
    strip --strip-debug "$library"
  done < <(find "$work/tree" -name 'mpi_lib*.so')
  "$prefix/env/bin/python" -m wheel pack --dest-dir "$prefix/wheels" "$work"/tree/horovod-* >/dev/null
  pip install "setuptools==$setuptools"
  rm -rf "$work"
}

main "$@"
