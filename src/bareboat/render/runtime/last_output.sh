# shellcheck shell=bash disable=SC2034,SC2154
# The last output of the rank that failed first.
# Expects: $rank, $status of first_failure.sh; $rank_logs.

if [ -n "$status" ]; then
  printf 'bareboat: rank %s ended first, with exit code %s; its last output:\n' "$rank" "$status" >&2
  for log in "$rank_logs/$rank".{out,err}; do
    [ ! -f "$log" ] || [ -L "$log" ] || tail -c 65536 "$log"
  done 2> /dev/null | tail -n 20 | sed 's/^/  /' >&2
fi
