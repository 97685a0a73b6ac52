#!/usr/bin/env bash
# Makes the system of a second site: a tree of Debian 13 with Slurm 24.11, PMIx 5, OpenMPI 5 and Python 3.13, where the
# first site has Slurm 22.05, OpenMPI 4.1 and Python 3.11. It has no accounting: Debian's slurmdbd 24.11.5 cannot use
# its MariaDB 11.8. As root, once; then, as a user:
#
#   sudo tests/lab/cluster/second-site.sh [TREE]
#   BAREBOAT_LAB_TREE=TREE pytest tests/cluster        the cluster's tests on that site
#   tests/lab/cluster/cluster.sh up DIR --tree TREE     the cluster, by hand
#
#   TREE: /opt/bareboat-lab/trixie without it. Tests that need what the tree has not are skipped.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
packages=(
  slurm-wlm slurmctld slurmd slurm-client munge libpmi2-0 libpmix-dev openmpi-bin
  libopenmpi-dev gcc libc6-dev python3 python3-venv python3-dev bubblewrap ca-certificates
  openssh-server openssh-client iproute2 util-linux uidmap procps less
)

die() { printf 'second-site: %s\n' "$1" >&2; [ $# -lt 2 ] || printf 'try: %s\n' "$2" >&2; exit 1; }

main() {
  local tree=${1:-/opt/bareboat-lab/trixie}
  [ "$(id -u)" -eq 0 ] || die 'only root can make a system' "sudo $0"
  command -v mmdebstrap >/dev/null || die 'mmdebstrap is not installed' 'apt-get install mmdebstrap'
  umask 022
  [ -e "$tree/etc/debian_version" ] ||
    mmdebstrap --quiet --variant=minbase "--include=$(IFS=,; echo "${packages[*]}")" trixie "$tree"
  mkdir -p "$tree/checkout"
  # What the login node runs Bareboat with, and an environment with MPI for jobs.
  inside "$tree" 'set -e
    [ -e /usr/local/bareboat/.ready ] || {
      python3 -m venv /usr/local/bareboat
      /usr/local/bareboat/bin/pip install --quiet --disable-pip-version-check --require-hashes -r /checkout/locks/core.txt
      touch /usr/local/bareboat/.ready
    }
    PREFIX=/opt/bareboat-lab/mpi /checkout/tests/lab/mpi-pairs.sh'
}

# As root of the tree, with this machine's network and pip's settings.
inside() { # TREE SHELL-COMMAND
  local name words=()
  for name in $(compgen -e PIP_; compgen -e SSL_CERT_FILE); do words+=("$name=${!name}"); done
  # shellcheck disable=SC2016
  unshare --mount bash -euc '
    tree=$1 certificates=/etc/ssl/certs/ca-certificates.crt
    mount --bind "$2" "$tree/checkout"
    mount --rbind /dev "$tree/dev"
    mount -t proc proc "$tree/proc"
    mount -t tmpfs tmpfs "$tree/tmp"
    mount --bind "$certificates" "$tree$certificates"
    cp -L /etc/resolv.conf "$tree/etc/resolv.conf"
    shift 2
    exec chroot "$tree" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "$@"
  ' bash "$1" "$here" "${words[@]}" bash -c "$2"
}

main "$@"
