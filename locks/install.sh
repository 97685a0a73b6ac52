#!/usr/bin/env bash
# Make a virtual environment with locked packages and Bareboat: by uv where it is installed and works, else by
# pip, whose settings choose the index. For `make`.
#   locks/install.sh VENV LOCK INSTALL…    INSTALL: arguments for Bareboat itself, such as -e .
#   PYTHON=python3.12   another interpreter      UV=no   pip even where uv is installed
#   TORCH=cpu|default|no   PyTorch's CPU build from PyTorch's index if that answers within three seconds (cpu),
#                          what the configured index has (default), or none
#   LEAN=yes               without the packages' own tests, a fifth of what they take
set -euo pipefail
venv=$1 lock=$2
shift 2
PYTHON=${PYTHON:-python3} TORCH=${TORCH:-cpu} UV=${UV:-yes} LEAN=${LEAN:-no}
torch=locks/unhashed.txt
cpu_index=https://download.pytorch.org/whl/cpu

say() { printf '%s\n' "$*" >&2; }

pip() { "$venv/bin/python" -m pip "$@" --quiet --disable-pip-version-check --progress-bar off; }

answers() { # $1: an index; connections that hang are given up with the process
  timeout 3 "$PYTHON" -c 'import sys, urllib.request as r; r.urlopen(sys.argv[1] + "/torch/", timeout=3).close()' \
    "$1" 2> /dev/null
}

by_uv() {
  uv venv --quiet --allow-existing --seed --python "$PYTHON" "$venv" &&
    uv pip install --quiet --python "$venv" --require-hashes --requirement "$lock" &&
    uv pip install --quiet --python "$venv" --no-deps --no-build-isolation "$@"
}

by_pip() {
  "$PYTHON" -c 'import ensurepip' 2> /dev/null || {
    say 'This Python cannot create virtual environments; on Debian: apt-get install python3-venv, or install uv'
    exit 2
  }
  "$PYTHON" -m venv --clear "$venv"
  pip install --require-hashes --requirement "$lock"
  pip install --no-deps --no-build-isolation "$@"
}

install_torch() { # $1: the program that installed the rest
  if [ "$TORCH" = cpu ] && answers "$cpu_index"; then
    say "installing PyTorch's CPU build ($1)"
    if [ "$1" = uv ]; then
      uv pip install --quiet --python "$venv" --torch-backend=cpu --requirement "$torch" && return
    else
      # Its dependencies are locked, and nothing else comes from that index.
      pip install --no-deps --index-url "$cpu_index" --requirement "$torch" && return
    fi
  fi
  say 'installing PyTorch from the configured index; a build with CUDA is 3 GB to download, 4 GB on disk'
  pip install --requirement "$torch"
}

# A capture would copy them, too.
leave_out_tests() {
  local packages name
  packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  rm -rf "$packages"/torch/test "$packages"/torch/bin/*[Tt]est*
  for name in matplotlib mpl_toolkits networkx numpy scipy sklearn sympy; do
    [ ! -d "$packages/$name" ] || find "$packages/$name" -type d -name tests -prune -exec rm -rf {} +
  done
}

"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  say "Python 3.11 or newer is required; choose one: make ${MAKECMDGOALS:-prove} PYTHON=python3.12"
  exit 2
}
by=pip
if [ "$UV" != no ] && command -v uv > /dev/null; then
  by=uv
fi
say "creating $venv ($by)"
if [ "$by" = uv ] && ! by_uv "$@"; then
  by=pip
  say 'uv failed; creating it with pip'
fi
[ "$by" = uv ] || by_pip "$@"
[ "$TORCH" = no ] || install_torch "$by"
[ "$LEAN" != yes ] || leave_out_tests
