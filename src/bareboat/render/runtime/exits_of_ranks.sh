# shellcheck shell=bash disable=SC2034,SC2154
# Exit codes that ranks write from inside their containers; the files may contain anything.
# Expects: $BAREBOAT_RUN_DIR, $BAREBOAT_NODE, $world_size.

exits() { # $1: the first of these files, $2: how many; only valid lines RANK CODE
  local number file found=()
  for ((number = $1; number < $1 + $2; number++)); do
    file=$BAREBOAT_RUN_DIR/exits.$number
    [ ! -f "$file" ] || [ -L "$file" ] || found+=("$file")
  done
  [ "${#found[@]}" -eq 0 ] || head -qc 65536 "${found[@]}" |
    awk -v n="$world_size" '/^(0|[1-9][0-9]*) (0|[1-9][0-9]?|1[0-9][0-9]|2[0-4][0-9]|25[0-5])$/ && $1 < n'
}

exits_of_run() { exits 0 "$world_size"; }
exits_of_node() { exits "$BAREBOAT_NODE" 1; }
