# shellcheck shell=bash disable=SC2034,SC2154
# The script of a sweep runs one of its points.
# Expects: $sweep_name, $sweep_names, $sweep_points, $BAREBOAT_RUN, $BAREBOAT_CONTROL; common.sh.

need_point() {
  [[ $BAREBOAT_RUN =~ \.[0-9]+$ ]] && return 0
  printf 'bareboat: the script of a sweep runs one of its points\n' >&2
  printf '  try: bash %s %s\n' "$0" "$sweep_name.0" >&2
  exit 3
}

begin_point() { # on the first node: this point's own directory, with its copy of the script
  (umask 077 && mkdir -p "$BAREBOAT_CONTROL") || exit 3
  script=${BAREBOAT_CONTROL%/points/*}/job.sh
  [ ! -e "$script" ] || (umask 077 && cp "$script" "$BAREBOAT_CONTROL")
}

set_sweep_values() { # a line of the table, below the names; separated by bars, special bytes as \0OCTAL
  local table=${BAREBOAT_CONTROL-} name
  BAREBOAT_SWEEP_INDEX=${BAREBOAT_RUN##*.}
  table=${table%/points/*}/table
  need "$table" 'the table of the sweep' 'bareboat submit, or bareboat run'
  IFS='|' read -r "${sweep_names[@]}" < <(sed -n "$((BAREBOAT_SWEEP_INDEX + 2))p" "$table") || {
    printf 'bareboat: no point %s in %s\n' "$BAREBOAT_SWEEP_INDEX" "$table" >&2
    exit 3
  }
  for name in "${sweep_names[@]}"; do
    printf -v "$name" %b "${!name}"
  done
}

is_last_point() { # whether all points have come to their end, this one included
  local top=${BAREBOAT_CONTROL%/points/*} ended
  mkdir -p "$top/ended/${BAREBOAT_RUN##*.}" || return 1
  ended=("$top"/ended/*)
  [ "${#ended[@]}" -ge "$sweep_points" ]
}
