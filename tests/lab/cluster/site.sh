#!/usr/bin/env bash
# Inside a cluster's namespaces (cluster.sh starts it): the network and what all machines share; then the
# machines, each in namespaces of its own.
#   site.sh init DIR          site.sh start-node DIR NODE          site.sh kill-node DIR NODE
set -euo pipefail

verb=$1 dir=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck disable=SC1091
. "$dir/settings"
# shellcheck source=SCRIPTDIR/machine.sh
. "$here/machine.sh"
# shellcheck source=SCRIPTDIR/slurm.sh
. "$here/$LAB_SITE.sh"

init() {
  outer_pid >"$dir/pid"
  if [ -n "$LAB_TREE" ]; then enter_tree; else mount -n -t proc proc /proc; fi
  lab_folders
  etc_of_site
  ip link add switch type bridge
  ip link set switch up
  site_prepare
  set_user_id_programs
  ssh_keys
  local name
  for name in login $(names); do start_machine "$name"; done
  for name in $(names) login; do wait_machine "$name"; done
  : >"$dir/ready"
  if [ -n "$LAB_HOLD" ]; then
    # Whoever brought us up holds the other end; when it ends, in whatever way, so do we.
    cat >/dev/null
    exit 0
  fi
  exec </dev/null
  while :; do sleep 3600; done
}

start_machine() { # NAME
  local name=$1 pid
  case " login $(names | tr '\n' ' ')" in
    *" $name "*) ;;
    *) echo "no such node: $name" >&2; exit 1 ;;
  esac
  if is_on "$name"; then
    echo "$name is on" >&2
    return
  fi
  rm -f "$dir/nodes/$name".{pid,up}
  ip link delete "to-$name" >/dev/null 2>&1 || true
  setsid unshare -m -n -u -i -p --fork --kill-child --propagation private \
    "$here/node.sh" "$dir" "$name" </dev/null >"$dir/log/$name.log" 2>&1 &
  until [ -s "$dir/nodes/$name.pid" ]; do sleep .01; done
  pid=$(cat "$dir/nodes/$name.pid")
  ip link add "to-$name" type veth peer name eth0 netns "$pid"
  ip link set "to-$name" master switch up
}

wait_machine() { # NAME
  until [ -e "$dir/nodes/$1.up" ]; do
    is_on "$1" || { echo "$1 did not start: see $dir/log/$1.log" >&2; exit 1; }
    sleep .02
  done
}

is_on() { [ -s "$dir/nodes/$1.pid" ] && [ -d "/proc/$(cat "$dir/nodes/$1.pid")" ]; }

kill_machine() { # NAME
  local pid
  is_on "$1" || { echo "no such node, or it is off: $1" >&2; exit 1; }
  pid=$(cat "$dir/nodes/$1.pid")
  kill -KILL "$pid"
  while [ -d "/proc/$pid" ]; do sleep .02; done
  rm -f "$dir/nodes/$1".{pid,up}
}

# sshd takes the key in the shared home, and every machine knows the others' key beforehand.
ssh_keys() {
  local home=$LAB_HOME/.ssh name names=login,$network.100
  for name in $(names); do names+=,$name,$network.${name#c}; done
  ssh-keygen -q -t ed25519 -N '' -C host -f /run/lab/ssh_host_key
  as_user mkdir -p -m 700 "$home"
  [ -e "$home/id_ed25519" ] || as_user ssh-keygen -q -t ed25519 -N '' -C "$LAB_USER" -f "$home/id_ed25519"
  as_user cp "$home/id_ed25519.pub" "$home/authorized_keys"
  echo "$names $(cut -d' ' -f1,2 /run/lab/ssh_host_key.pub)" | as_user tee "$home/known_hosts" >/dev/null
}

case $verb in
  init) init ;;
  start-node)
    start_machine "$3"
    wait_machine "$3" ;;
  kill-node) kill_machine "$3" ;;
esac
