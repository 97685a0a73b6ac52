# shellcheck shell=bash disable=SC2034,SC2154
# Check that the ranks find each other, before the job.
# Expects: $rung, $launch, $rank_says, $BAREBOAT_CONTROL; run, finish.

# Before the first step: do all ranks find each other? A wrong MPI starts N jobs of one rank each. If not, the
# next launcher is tried in this allocation if there is a script for it. The runs of a study are checked once.
failed=$BAREBOAT_CONTROL/mpi_check.$rung.log next=$BAREBOAT_CONTROL/rung.$((rung + 1)).sh
if [ -e "$failed" ] || ! { [ -e "$BAREBOAT_CONTROL/checked" ] ||
  run check < /dev/null > "$BAREBOAT_CONTROL/mpi_check.log" 2>&1; }; then
  if [ ! -e "$failed" ]; then
    tail -n 20 "$BAREBOAT_CONTROL/mpi_check.log" >&2
    why='the ranks did not find each other'
    grep -q "$rank_says" "$BAREBOAT_CONTROL/mpi_check.log" || why="$launch"' started no rank'
    [ -e "$next" ] || {
      printf 'bareboat: %s; the job is not started\n' "$why" >&2
      finish 3
    }
    printf 'bareboat: %s; trying the next launcher\n' "$why" >&2
    mv "$BAREBOAT_CONTROL/mpi_check.log" "$failed"
  fi
  # shellcheck disable=SC1090
  . "$next"
fi
