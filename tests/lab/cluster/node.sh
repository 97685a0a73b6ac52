#!/usr/bin/env bash
# The first process of a machine of the cluster, in its own namespaces: site.sh starts it.   node.sh DIR NAME
set -euo pipefail

dir=$1 name=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck disable=SC1091
. "$dir/settings"
# shellcheck source=SCRIPTDIR/machine.sh
. "$here/machine.sh"
# shellcheck source=SCRIPTDIR/slurm.sh
. "$here/$LAB_SITE.sh"

outer_pid >"$dir/nodes/$name.pid"
run_of_machine "$name"
hostname "$name"
mount -n -t proc proc /proc
own_devices "$name"
own_network "$name"
# As on a machine that was booted; Podman insists on it.
mount -n --make-rshared /
if [ "$name" = login ]; then
  sshd_start
  site_login
  site_wait
else
  own_folders
  sshd_start
  site_node "$name"
fi
: >"/run/lab/up/$name.up"
exec </dev/null
while :; do sleep 3600; done
