# shellcheck shell=bash disable=SC2034,SC2154
# A shell in the container of a job that runs on this node: bash SCRIPT RUN CONTROL.
# Expects: $environment_from, shell_command; common.sh.

take_variables_of_job() { # those passed on by name: the job's processes have the values
  local pid entry name
  unset "${environment_from[@]}"
  for pid in $(grep -lszxF "BAREBOAT_RUN=$BAREBOAT_RUN" /proc/[0-9]*/environ | tr -dc '0-9\n'); do
    while IFS= read -r -d '' entry; do
      for name in "${environment_from[@]}"; do
        [ "${entry%%=*}" != "$name" ] || export "${entry?}"
      done
    done 2> /dev/null < "/proc/$pid/environ"
  done
}

main() {
  BAREBOAT_RUN=$1 BAREBOAT_CONTROL=$2
  BAREBOAT_RUN_DIR=${BAREBOAT_CONTROL%/*}/ranks
  read -r BAREBOAT_HOST < /proc/sys/kernel/hostname
  HERE=" on $BAREBOAT_HOST"
  ! has environment_from || take_variables_of_job
  need_all
  ! has sweep || set_sweep_values
  unset BAREBOAT_RUN # the shell is not part of the run, which does not end its processes
  ! has sealed || seal_environment
  shell_command
}
