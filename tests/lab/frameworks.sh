#!/usr/bin/env bash
# Installs JAX, Keras, TensorFlow, Dask, and Lightning with Accelerate (all for CPUs) into an environment each,
# readable by every user, for the tests of their launchers. Harmless when run again. --all: also DeepSpeed and Ray, and
# what the built-in studies need, for the tests that are marked "frameworks". --only NAME: that one.
#
#   tests/lab/frameworks.sh [--all] [--only NAME] [--dry-run]
#
#   PREFIX=/opt/bareboat-lab/frameworks   where the environments go
#
# TensorFlow 2.15.1 is the last whose MultiWorkerMirroredStrategy works with the Keras that it brings.
set -euo pipefail

prefix=${PREFIX:-/opt/bareboat-lab/frameworks}
declare -A wanted=(
  [dask]='dask==2026.8.0 distributed==2026.8.0'
  [jax]='jax==0.10.2 jaxlib==0.10.2'
  [keras]='keras==3.15.1 jax==0.10.2 jaxlib==0.10.2'
  [lightning]='torch==2.13.0 numpy accelerate==1.15.0 lightning==2.6.6'
  [tensorflow]='tensorflow-cpu==2.15.1 numpy<2'
)
declare -A more=(
  [deepspeed]='torch==2.13.0 numpy deepspeed==0.19.8'
  [ray]='ray==2.60.0'
  [studies]='torch==2.13.0 numpy keras==3.15.1 xarray==2026.9.0 netCDF4==1.7.5.1.post1'
)

say() { printf 'frameworks: %s\n' "$*" >&2; }
die() { say "$1"; [ $# -lt 2 ] || say "try: $2"; exit 1; }

main() {
  local name only dry=
  while [ $# -gt 0 ]; do
    case $1 in
      --all) for name in "${!more[@]}"; do wanted[$name]=${more[$name]}; done ;;
      --only)
        name=${2:-}
        [ -n "${wanted[$name]:-${more[$name]:-}}" ] || die "no environment '$name'" "$0 --all --dry-run"
        only="${wanted[$name]:-${more[$name]:-}}"
        wanted=([$name]=$only)
        shift
        ;;
      --dry-run) dry=1 ;;
      *) die "unknown argument: $1" "$0 --all --dry-run" ;;
    esac
    shift
  done
  if [ -n "$dry" ]; then
    for name in "${!wanted[@]}"; do printf '%s: %s\n' "$prefix/$name" "${wanted[$name]}"; done
    return
  fi
  umask 022
  mkdir -p "$prefix"
  for name in "${!wanted[@]}"; do
    install_environment "$name" "${wanted[$name]}"
  done
}

# install_environment NAME PACKAGES: in its place, because its scripts hold its path; marked when it is whole.
install_environment() {
  local home=$prefix/$1 packages=$2 module
  [ "$(cat "$home/.whole" 2>/dev/null || true)" != "$packages" ] || return 0
  say "installing $packages into $home"
  rm -rf "$home"
  /usr/bin/python3 -m venv "$home"
  # shellcheck disable=SC2086  # one word for each package
  "$home/bin/pip" install --quiet --disable-pip-version-check $packages
  case $1 in studies) module=netCDF4 ;; *) module=$1 ;; esac
  KERAS_BACKEND=jax "$home/bin/python" -I -c "import $module"
  echo "$packages" >"$home/.whole"
}

main "$@"
