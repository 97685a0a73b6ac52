#!/usr/bin/env bash
# Installs what the clusters of the tests are made of, on Debian 12 (amd64), as root: Slurm with its
# accounting, Grid Engine, the Torque commands over Slurm, sshd, OpenMPI. Starts nothing: a cluster is brought
# up later by an ordinary user (cluster.sh). Harmless when run again.
#
#   sudo tests/lab/cluster/install-clusters.sh [--dry-run]
#
#   PREFIX=/opt/bareboat-lab   where the Torque commands and MariaDB's empty database go
set -euo pipefail

prefix=${PREFIX:-/opt/bareboat-lab}

packages=(
  # Slurm, who asks (munge), what was used (slurmdbd over MariaDB), and what starts MPI ranks
  slurm-wlm slurmctld slurmd slurmdbd slurm-client munge libpmi2-0 mariadb-server openmpi-bin
  # what the Torque commands are written in
  libslurm-perl libslurmdb-perl libswitch-perl
  gridengine-master gridengine-exec gridengine-client
  # from node to node, and the namespaces of a node
  openssh-server openssh-client iproute2 util-linux uidmap procps
)

say() { printf 'install-clusters: %s\n' "$*" >&2; }
die() { say "$1"; [ $# -lt 2 ] || say "try: $2"; exit 1; }

main() {
  case ${1:-} in
    '') ;;
    --dry-run)
      printf 'apt-get install %s\nslurm-wlm-torque -> %s\nan empty MariaDB -> %s\n' \
        "${packages[*]}" "$prefix/torque" "$prefix/mariadb.tar"
      return ;;
    *) die "unknown argument: $1" "$0 --dry-run" ;;
  esac
  [ "$(id -u)" -eq 0 ] || die 'only root can install packages' "sudo $0"
  umask 022
  export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
  mkdir -p "$prefix"
  install_packages
  shorten_architecture
  install_torque
  install_database
  # Where each site's own configuration is mounted.
  mkdir -p /etc/slurm /var/lib/gridengine /var/spool/gridengine
}

install_packages() {
  local missing=() package
  for package in "${packages[@]}"; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing ${missing[*]}"
  # The packages' own daemons would run as one cluster of this machine: none may start, now or at boot.
  local policy=/usr/sbin/policy-rc.d ours=
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    ours=1
  fi
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  [ -z "$ours" ] || rm -f "$policy"
  if [ -d /run/systemd/system ]; then
    systemctl disable --quiet slurmctld slurmd slurmdbd munge mariadb gridengine-master gridengine-exec ||
      say 'could not disable the daemons at boot; they are not needed'
  fi
}

# Every command of Grid Engine starts this script of 400 lines, which takes longer than the command.
shorten_architecture() {
  local script=/usr/share/gridengine/util/arch
  dpkg-divert --quiet --local --rename --add "$script"
  printf '#!/bin/sh\necho %s\n' "$("$script.distrib")" >"$script"
  chmod 755 "$script"
}

# Debian's package of them conflicts with gridengine-client (both own /usr/bin/qsub): unpacked aside.
install_torque() {
  local home=$prefix/torque
  [ ! -x "$home/bin/qsub" ] || return 0
  say "unpacking the Torque commands into $home"
  local work
  work=$(mktemp -d)
  chmod 755 "$work"
  (cd "$work" && apt-get -qq -o APT::Sandbox::User=root download slurm-wlm-torque)
  rm -rf "$home" "$home.new"
  mkdir -p "$home.new/bin"
  dpkg-deb -x "$work"/slurm-wlm-torque_*.deb "$home.new"
  local program
  for program in "$home.new"/usr/bin/*; do
    ln -s "../usr/bin/${program##*/}" "$home.new/bin/${program##*/}"
  done
  # Its qsub looks for these beside itself.
  for program in sbatch salloc srun; do
    ln -s "/usr/bin/$program" "$home.new/bin/$program"
  done
  mv "$home.new" "$home"
  rm -rf "$work"
}

# Making an empty database takes seconds, unpacking one does not: each cluster starts from this one.
install_database() {
  [ ! -e "$prefix/mariadb.tar" ] || return 0
  say "making an empty database in $prefix/mariadb.tar"
  local work
  work=$(mktemp -d)
  chmod 755 "$work"
  mariadb-install-db --no-defaults --user=root --datadir="$work/data" --skip-test-db --skip-name-resolve \
    --auth-root-authentication-method=socket --auth-root-socket-user=root \
    --innodb-log-file-size=8M >"$work/log" 2>&1 || { cat "$work/log" >&2; die 'MariaDB makes no database'; }
  tar -C "$work/data" --owner=0 --group=0 --sparse -cf "$prefix/mariadb.tar.new" .
  mv "$prefix/mariadb.tar.new" "$prefix/mariadb.tar"
  rm -rf "$work"
}

main "$@"
