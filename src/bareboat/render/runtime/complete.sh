# shellcheck shell=bash disable=SC2034,SC2154
# The first node: the job succeeds when all parts do. srun returns 0 for a node lost after the others' end.
# Expects: $code, $BAREBOAT_CONTROL; $end_files: the files with a line per end, $end_count: of how many.

all_ended() { # another node's files may appear late, unless something changes in their directory
  local looks
  for ((looks = 0; looks < 300; looks++)); do
    [ "$(cat "$BAREBOAT_CONTROL/$end_files".* 2> /dev/null | wc -l)" -lt "$end_count" ] || return 0
    : > "$BAREBOAT_CONTROL/look" && rm "$BAREBOAT_CONTROL/look"
    sleep 0.2
  done
  return 1
}

if [ "$code" -eq 0 ] && ! all_ended; then
  printf 'bareboat: a node was lost: not all ranks have ended\n' >&2
  code=70
fi
