# shellcheck shell=bash disable=SC1090,SC2034,SC2154
# A program (mpirun, srun) starts the ranks, as parts of this script. Before the job: do they find each other?
# Expects: $what, $rung, $launch, $rank_says, $world_size, $BAREBOAT_CONTROL; rank_names, run, finish, main.

run_rank() { # the rank of this part: $what is job or check
  local rank_code
  ! has mpi_nodes || unset "${launcher_settings[@]}"
  WORLD_SIZE=$world_size MASTER_ADDR=$BAREBOAT_MASTER MASTER_PORT=$BAREBOAT_PORT
  run_once "$what"
  rank_code=$code
  # Launchers return one code for all ranks. The program that started the ranks ends the others.
  [ "$what" = check ] ||
    (
      ! has names || rank_names
      echo "${RANK:-?} $rank_code"
    ) >> "$BAREBOAT_CONTROL/exits.$BAREBOAT_HOST"
  [ "$what" = check ] || [ "$rank_code" -ne 0 ] || others_run || end_left
  # It would end the others when it sees a failure.
  [ "$rank_code" -eq 0 ] || ! is_stopping || let_save exits "$world_size"
  exit "$rank_code"
}

others_run() { # whether other ranks of this node still run, by the lines of those that ended
  local ended
  mapfile -t ended < "$BAREBOAT_CONTROL/exits.$BAREBOAT_HOST"
  [ "${#ended[@]}" -lt "$ranks_per_node" ]
}

# Before the first step: a wrong MPI starts N jobs of one rank each. If so, the next launcher is tried in this
# allocation if there is a script for it. The runs of a study are checked once.
check_ranks() { # $@: the script's arguments
  local failed=$BAREBOAT_CONTROL/mpi_check.$rung.log next=$BAREBOAT_CONTROL/rung.$((rung + 1)).sh why
  if [ ! -e "$failed" ]; then
    [ ! -e "$BAREBOAT_CONTROL/checked" ] || return 0
    run check < /dev/null > "$BAREBOAT_CONTROL/mpi_check.log" 2>&1 && return 0
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
  script=$next
  . "$next" # runs the job to its end
}
