# shellcheck shell=bash disable=SC2034,SC2154
# MPI's ranks on one node share memory: after a successful MPI check, processes with MPI are in its world.
# Expects: $processes, $unit; world.sh.

shared_places() {
  grep -lsE '/libmpi[^/]*[.]so' "${processes[@]/%//maps}" | sed 's/$/ shared mpi/'
}
