# shellcheck shell=bash disable=SC2034,SC2154
# MPI's ranks on one node share memory; on several nodes they may use a network that bypasses the kernel.
# Expects: $processes, $unit; world.sh.

shared_places() {
  grep -sE '^[^ ]+ rw-s .*(/dev/shm/|/memfd:|/SYSV|segment)' "${processes[@]/%//maps}" |
    sed -E "s/:[^ ]+ rw-s [^ ]+ ([^ ]+) ([^ ]+) .*/ shared $unit:\\1:\\2/"
  find "${processes[@]/%//fd}" -mindepth 1 \( -lname '/dev/infiniband/uverbs*' -o -lname '/dev/cxi*' \
    -o -lname '/dev/hfi1*' \) -printf '%h shared fabric\n'
}
