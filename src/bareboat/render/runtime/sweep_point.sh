# shellcheck shell=bash disable=SC2034,SC2154
# The script of a sweep runs one of its points.
# Expects: $sweep_name, $BAREBOAT_RUN.

[[ $BAREBOAT_RUN =~ \.[0-9]+$ ]] || {
  printf 'bareboat: the script of a sweep runs one of its points\n' >&2
  printf '  try: bash %s %s\n' "$0" "$sweep_name.0" >&2
  exit 3
}
