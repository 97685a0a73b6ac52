# shellcheck shell=bash disable=SC2034,SC2154
# The values of a sweep's point.
# Expects: $sweep_names, $BAREBOAT_RUN, $BAREBOAT_CONTROL; need.sh.

# The point's values: a line of the table, below the names; separated by bars, special bytes as \0OCTAL.
BAREBOAT_SWEEP_INDEX=${BAREBOAT_RUN##*.}
table=${BAREBOAT_CONTROL-}
table=${table%/points/*}/table
need "$table" 'the table of the sweep' 'bareboat submit, or bareboat run'
IFS='|' read -r "${sweep_names[@]}" < <(sed -n "$((BAREBOAT_SWEEP_INDEX + 2))p" "$table") || {
  printf 'bareboat: no point %s in %s\n' "$BAREBOAT_SWEEP_INDEX" "$table" >&2
  exit 3
}
for name in "${sweep_names[@]}"; do
  printf -v "$name" %b "${!name}"
done
