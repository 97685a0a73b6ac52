#!/usr/bin/env bash
# A real cluster on one machine, brought up by an ordinary user: a login node and compute nodes, each with its
# own network, hostname, process table, /tmp, /dev and sshd; one home folder for all of them.
#
#   cluster.sh up DIR [--site slurm|gridengine] [--nodes 3] [--gpus 2] [--tree TREE] [--hold]
#   cluster.sh login DIR [COMMAND…]         as you, on the login node (without a command: a shell)
#   cluster.sh node DIR NODE [COMMAND…]     as you, on a compute node: c1, c2, c3
#   cluster.sh root DIR NODE [COMMAND…]     as the cluster's root, on a node or on "login"
#   cluster.sh kill-node DIR NODE           power off: every process of the node is gone at once
#   cluster.sh start-node DIR NODE          power on again
#   cluster.sh down DIR                     everything is gone, the home folder stays
#
# DIR is new or empty. DIR/home is your home on the cluster, at the same path inside and outside; DIR/log has
# the daemons' logs. --tree: with the system in that directory (second-site.sh), of which the login node also shows
# this checkout, and no node anything else of this machine. --hold: the cluster ends when the standard input of `up` is
# closed by its last writer.
set -euo pipefail
# What the nodes' root and its daemons write is read by you, and the other way round.
umask 022

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
start_limit_s=60

die() { printf 'cluster: %s\n' "$1" >&2; [ $# -lt 2 ] || printf 'try: %s\n' "$2" >&2; exit 1; }
usage() { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

main() {
  local verb=${1:-help}
  shift || true
  case $verb in
    help | --help | -h) usage; return ;;
    up | down | login | node | root | kill-node | start-node) ;;
    *) usage >&2; die "unknown verb: $verb" ;;
  esac
  [ $# -ge 1 ] || { usage >&2; die "$verb: which folder?"; }
  dir=$1
  shift
  case $verb in
    up) up "$@" ;;
    down) down ;;
    login) load; enter_as_user login "$@" ;;
    node) load; [ $# -ge 1 ] || die 'which node?'; enter_as_user "$@" ;;
    root) load; [ $# -ge 1 ] || die 'which node?'; enter_as_root "$@" ;;
    kill-node | start-node)
      load
      [ $# -eq 1 ] || die 'which node?'
      enter_as_root site "$here/site.sh" "$verb" "$dir" "$1" ;;
  esac
}

load() {
  [ -d "$dir" ] && dir=$(cd "$dir" && pwd)
  is_up || die "no cluster is up in $dir" "$here/cluster.sh up $dir"
  # shellcheck disable=SC1091
  . "$dir/settings"
}

is_up() { [ -s "$dir/pid" ] && [ -d "/proc/$(cat "$dir/pid")" ]; }

# --- entering ---------------------------------------------------------------------------------------------

# Into the cluster's namespaces, and from there into those of one of its machines.
reach() { # NODE|site -> array `reach`
  reach=(nsenter -t "$(cat "$dir/pid")" -U -m -n -u -i -p --setuid 0 --setgid 0 --)
  [ "$1" != site ] || return 0
  [ -e "$dir/nodes/$1.pid" ] || die "no such node, or it is off: $1" "$here/cluster.sh start-node $dir $1"
  reach+=(nsenter -t "$(cat "$dir/nodes/$1.pid")" -m -n -u -i -p --)
}

enter_as_root() { # NODE COMMAND…
  local node=$1
  shift
  [ $# -gt 0 ] || set -- bash
  local reach
  reach "$node"
  exec "${reach[@]}" env -i -C / HOME=/ USER=root LOGNAME=root LANG=C.UTF-8 "TERM=${TERM:-dumb}" \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

# The environment is that of a fresh login: nothing of the caller's.
enter_as_user() { # NODE COMMAND…
  local node=$1
  shift
  [ $# -gt 0 ] || set -- bash
  local reach
  reach "$node"
  exec "${reach[@]}" setpriv "--reuid=$LAB_UID" "--regid=$LAB_GID" --init-groups \
    env -i -C "$LAB_HOME" "HOME=$LAB_HOME" "USER=$LAB_USER" "LOGNAME=$LAB_USER" SHELL=/bin/bash \
    LANG=C.UTF-8 "TERM=${TERM:-dumb}" PATH=/usr/local/bin:/usr/bin:/bin "$@"
}

# --- up and down ------------------------------------------------------------------------------------------

up() {
  local site=slurm nodes=3 gpus=2 tree='' hold=
  while [ $# -gt 0 ]; do
    case $1 in
      --site) site=$2; shift ;;
      --nodes) nodes=$2; shift ;;
      --gpus) gpus=$2; shift ;;
      --tree) tree=$(cd "$2" && pwd); shift ;;
      --hold) hold=1 ;;
      *) die "unknown argument: $1" "$here/cluster.sh help" ;;
    esac
    shift
  done
  check "$site" "$tree"
  mkdir -p "$dir" || die "cannot make $dir"
  dir=$(cd "$dir" && pwd)
  case $dir in /run/* | /proc/* | /dev/*) die "$dir cannot be shared by the nodes" "cluster.sh up /tmp/cluster" ;; esac
  ! is_up || die "a cluster is up in $dir" "$here/cluster.sh down $dir"
  mkdir -p "$dir"/{home,log,nodes}
  rm -f "$dir"/{pid,ready} "$dir"/nodes/*
  rm -f "$dir"/log/*
  # The nodes' root, another user for the kernel, writes here too.
  chmod 755 "$dir/home" "$dir/nodes" "$dir/log"
  local user uid gid
  user=$(id -un) uid=$(id -u) gid=$(id -g)
  {
    printf 'LAB_USER=%q LAB_UID=%q LAB_GID=%q LAB_HOME=%q\n' "$user" "$uid" "$gid" "$dir/home"
    printf 'LAB_SITE=%q LAB_NODES=%q LAB_GPUS=%q LAB_HOLD=%q LAB_TREE=%q\n' \
      "$site" "$nodes" "$gpus" "$hold" "$tree"
  } >"$dir/settings"
  if [ -n "$hold" ]; then exec 8<&0; else exec 8</dev/null; fi
  start_site "$uid" "$gid"
  wait_ready
}

check() { # SITE TREE
  [ "$(id -u)" -ne 0 ] || die 'a cluster is brought up by an ordinary user, not by root' "su USER -c '$0 up …'"
  local program programs=(unshare nsenter setpriv newuidmap newgidmap) inside=(ip sshd ssh-keygen)
  case $1 in
    slurm)
      inside+=(slurmctld slurmd munged)
      [ -n "$2" ] || inside+=(slurmdbd mariadbd sacctmgr) ;;
    gridengine) inside+=(sge_qmaster sge_execd qconf) ;;
    *) die "unknown site: $1" 'cluster.sh up DIR --site slurm' ;;
  esac
  PATH=$PATH:/usr/sbin:/sbin
  [ -n "$2" ] || programs+=("${inside[@]}")
  for program in "${programs[@]}"; do
    command -v "$program" >/dev/null || die "$program is not installed" "sudo $here/install-clusters.sh"
  done
  for program in ${2:+"${inside[@]}"}; do
    compgen -G "$2/usr/*bin/$program" >/dev/null || die "$program is not in $2" "sudo $here/second-site.sh $2"
  done
  unshare -U true 2>/dev/null || die 'user namespaces are off on this machine' 'sysctl user.max_user_namespaces kernel.apparmor_restrict_unprivileged_userns'
  local file
  for file in /etc/subuid /etc/subgid; do
    [ "$(subordinate "$file" | cut -d' ' -f2)" -ge 65536 ] 2>/dev/null ||
      die "$(id -un) has no 65536 subordinate ids in $file" "sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $(id -un)"
  done
}

subordinate() { # FILE -> START COUNT
  awk -F: -v name="$(id -un)" -v id="$(id -u)" '($1 == name || $1 == id) && $3 >= 65536 { print $2, $3; exit }' "$1"
}

# You keep your number inside, as on a real cluster, so what jobs write is yours outside too; the cluster's
# root and its daemons' users are subordinate ids of yours.
id_map() { # FILE OWN -> INSIDE OUTSIDE COUNT …
  local start
  read -r start _ < <(subordinate "$1")
  if [ "$2" -lt 65536 ]; then
    echo "0 $start $2 $2 $2 1 $(($2 + 1)) $((start + $2)) $((65535 - $2))"
  else
    echo "0 $start 65536 $2 $2 1"
  fi
}

start_site() { # UID GID
  local holder uid_map gid_map
  read -ra uid_map < <(id_map /etc/subuid "$1")
  read -ra gid_map < <(id_map /etc/subgid "$2")
  unshare -U sleep 60 </dev/null >/dev/null 2>&1 8<&- &
  holder=$!
  # shellcheck disable=SC2064
  trap "kill $holder 2>/dev/null || true" EXIT
  until [ "$(readlink "/proc/$holder/ns/user")" != "$(readlink /proc/self/ns/user)" ]; do sleep .01; done
  newuidmap "$holder" "${uid_map[@]}"
  newgidmap "$holder" "${gid_map[@]}"
  # The first process inside is the cluster's power supply: when it ends, the kernel ends all the others.
  env -i LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    setsid nsenter -t "$holder" -U --setuid 0 --setgid 0 -- \
    unshare -m -n -u -i -p --fork --kill-child --propagation private \
    "$here/site.sh" init "$dir" <&8 >"$dir/log/site.log" 2>&1 8<&- &
  starter=$!
  until [ -s "$dir/pid" ] || ! kill -0 "$starter" 2>/dev/null; do sleep .02; done
  exec 8<&-
}

wait_ready() {
  local end=$((SECONDS + start_limit_s))
  until [ -e "$dir/ready" ]; do
    if ! kill -0 "$starter" 2>/dev/null || [ $SECONDS -ge $end ]; then
      down
      tail -n 20 "$dir"/log/*.log >&2
      die "the cluster in $dir did not come up; its logs are above"
    fi
    sleep .05
  done
}

down() {
  [ -e "$dir/pid" ] || return 0
  local pid parent
  pid=$(cat "$dir/pid")
  # The number may be another process's by now: only a site of this folder is ended.
  if command_line "$pid" | grep -qF "site.sh init $(cd "$dir" && pwd)"; then
    parent=$(awk '$1 == "PPid:" { print $2 }' "/proc/$pid/status")
    kill -KILL "$pid" 2>/dev/null || true
    # The parent, unshare, ends with its child.
    while [ -n "$(command_line "$pid")" ] || command_line "$parent" | grep -qF "site.sh init"; do sleep .02; done
  fi
  rm -f "$dir"/{pid,ready} "$dir"/nodes/*
}

command_line() { { tr '\0' ' ' <"/proc/$1/cmdline"; } 2>/dev/null || true; }

main "$@"
