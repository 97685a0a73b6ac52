#!/usr/bin/env bash
# Runs a command where any user may open /dev/fuse, as on most clusters, on a machine where only root may: in a
# mount namespace of its own, so that nothing of the machine changes. As root:
#
#   sudo tests/lab/with-fuse.sh su - alice -c 'cd bareboat && make test TESTS=tests/contract/test_packed.py'
set -euo pipefail

if [ $# -eq 0 ]; then
  printf 'with-fuse: no command\n  try: %s COMMAND …\n' "$0" >&2
  exit 2
fi
if [ "$(id -u)" -ne 0 ]; then
  printf 'with-fuse: only root can show another /dev/fuse\n  try: sudo %s …\n' "$0" >&2
  exit 3
fi
# shellcheck disable=SC2016
exec unshare --mount --propagation private bash -euc '
  mount -t tmpfs -o mode=755 fuse /mnt
  mknod -m 666 /mnt/fuse c 10 229
  mount --bind /mnt/fuse /dev/fuse
  umount -l /mnt
  exec "$@"
' with-fuse "$@"
