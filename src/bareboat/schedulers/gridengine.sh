# shellcheck shell=bash disable=SC2034,SC2154
# Grid Engine: the nodes, a command on one, and requeueing.
# Expects: $BAREBOAT_JOB, $BAREBOAT_NODES, $BAREBOAT_CONTROL, $script.

hosts() { awk '!seen[$1]++ { print $1 }' "$PE_HOSTFILE"; }

# -inherit: the parallel environment starts a task of the job on that node, which ends with the job.
on_host() { # $1: the node; the rest is the command
  local host=$1
  shift
  qrsh -inherit -nostdin "$host" "$@"
}

nodes_down() { timeout 20 qselect -qs u | awk -F @ 'NF == 2 { print $2 }'; }

again() { # prints the ID under which the job, or the array's element, continues
  local element=${SGE_TASK_ID-} number
  if [ "$BAREBOAT_NODES" -eq 1 ]; then # 99: Grid Engine requeues a job with this exit code
    echo "$BAREBOAT_JOB"
    AGAIN=99
    return 0
  fi
  # With several nodes it would wait there forever "until clean up of a previous run has finished".
  set -- -hold_jid "$JOB_ID"
  # An element does not wait for this job either: that would be for all elements.
  [ "${element:-undefined}" = undefined ] || set -- -t "$element"
  if number=$(qsub -terse "$@" -o "${BAREBOAT_CONTROL%/*}/scheduler.log" "$script"); then
    [ "$1" = -hold_jid ] || number=${number%%.*}.$element
    echo "$number"
  else
    printf 'bareboat: this node is not a submit host; an administrator can change that: qconf -as %s\n' \
      "$(uname -n)" >&2
    return 1
  fi
}
