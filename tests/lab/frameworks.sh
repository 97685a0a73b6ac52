#!/usr/bin/env bash
# Installs JAX, TensorFlow, and Lightning with Accelerate (all for CPUs) into an environment each, readable by
# every user, for the tests of their launchers. Harmless when run again.
#
#   tests/lab/frameworks.sh [--dry-run]
#
#   PREFIX=/opt/bareboat-lab/frameworks   where the environments go: jax, tensorflow, lightning
#
# TensorFlow 2.15.1 is the last whose MultiWorkerMirroredStrategy works with the Keras that it brings.
set -euo pipefail

prefix=${PREFIX:-/opt/bareboat-lab/frameworks}
declare -A wanted=(
  [jax]='jax==0.10.2 jaxlib==0.10.2'
  [lightning]='torch==2.13.0 numpy accelerate==1.15.0 lightning==2.6.6'
  [tensorflow]='tensorflow-cpu==2.15.1 numpy<2'
)

say() { printf 'frameworks: %s\n' "$*" >&2; }
die() { say "$1"; [ $# -lt 2 ] || say "try: $2"; exit 1; }

main() {
  local name
  case ${1:-} in
    '') ;;
    --dry-run)
      for name in "${!wanted[@]}"; do printf '%s: %s\n' "$prefix/$name" "${wanted[$name]}"; done
      return ;;
    *) die "unknown argument: $1" "$0 --dry-run" ;;
  esac
  umask 022
  mkdir -p "$prefix"
  for name in "${!wanted[@]}"; do
    install_environment "$name" "${wanted[$name]}"
  done
}

# install_environment NAME PACKAGES: in its place, because its scripts hold its path; marked when it is whole.
install_environment() {
  local home=$prefix/$1 packages=$2
  [ "$(cat "$home/.whole" 2>/dev/null || true)" != "$packages" ] || return 0
  say "installing $packages into $home"
  rm -rf "$home"
  /usr/bin/python3 -m venv "$home"
  # shellcheck disable=SC2086  # one word for each package
  "$home/bin/pip" install --quiet --disable-pip-version-check $packages
  "$home/bin/python" -I -c "import $1"
  echo "$packages" >"$home/.whole"
}

main "$@"
