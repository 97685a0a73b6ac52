# shellcheck shell=bash disable=SC2034,SC2154
# For a shell in a job's container: the job's own values of variables that are passed on by name.
# Expects: $environment_from, $BAREBOAT_RUN.

# The job's own values of the variables passed on by name: its processes have them, no file does.
unset "${environment_from[@]}"
for pid in $(grep -lszxF "BAREBOAT_RUN=$BAREBOAT_RUN" /proc/[0-9]*/environ | tr -dc '0-9\n'); do
  while IFS= read -r -d '' entry; do
    for name in "${environment_from[@]}"; do
      [ "${entry%%=*}" != "$name" ] || export "${entry?}"
    done
  done 2> /dev/null < "/proc/$pid/environ"
done
