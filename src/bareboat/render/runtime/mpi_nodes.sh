# shellcheck shell=bash disable=SC2034,SC2154
# The host's MPI launcher on several nodes: a launcher that does not support the scheduler gets a host file, and
# this script in place of ssh.
# Expects: $hosts, $ranks_per_node, $script, $BAREBOAT_CONTROL; at_exit; hosts and on_host of the scheduler.

# Launchers that support the scheduler ignore them, and what the user has set stays.
launcher_settings=(
  OMPI_MCA_{orte_default_hostfile,plm_rsh_agent,plm_rsh_no_tree_spawn,orte_leave_session_attached}
  PRTE_MCA_{prte_default_hostfile,plm_ssh_agent,plm_ssh_no_tree_spawn,prte_leave_session_attached}
  HYDRA_{HOST_FILE,LAUNCHER_EXEC,LAUNCHER} I_MPI_HYDRA_{HOST_FILE,BOOTSTRAP_EXEC,BOOTSTRAP}
)

lead_launcher() {
  local directory name value
  # OpenMPI splits the agent's path at blanks.
  directory=$(TMPDIR='' mktemp -d "/tmp/bareboat-XXXXXXXX") || finish 3
  at_exit "rm -rf $directory"
  printf "%s slots=$ranks_per_node\n" "${hosts[@]}" > "$directory/hosts"
  printf "%s:$ranks_per_node\n" "${hosts[@]}" > "$directory/hydra_hosts"
  # shellcheck disable=SC2016 # the agent expands them
  printf '#!/bin/bash\nexec bash %q --reach "$0" "$@"\n' "$script" > "$directory/agent"
  chmod 700 "$directory/agent"
  for name in "${launcher_settings[@]}"; do
    case $name in
      *HYDRA_HOST_FILE) value=$directory/hydra_hosts ;;
      *hostfile) value=$directory/hosts ;;
      *agent | *_EXEC) value=$directory/agent ;;
      *HYDRA_*) value=ssh ;;
      *) value=1 ;;
    esac
    [ -n "${!name+set}" ] || export "$name=$value"
  done
}

reach() { # $1: the agent; the rest as for ssh: options, the node, and the words of a command for its shell
  local agent=$1 host pid command
  shift
  while [[ ${1:-} == -* ]]; do shift; done
  host=$1
  shift
  command=${*//"$agent"//bin/true} # ORTE's daemons require an agent on their node, and never use it
  mapfile -t hosts < <(hosts)
  on_host "$host" /bin/sh -c "$command" < /dev/null &
  pid=$!
  trap 'kill "$pid" 2> /dev/null' TERM INT HUP
  wait "$pid"
}
