# shellcheck shell=bash disable=SC2034,SC2154
# LSF: the nodes, a command on one, and requeueing.
# Expects: $BAREBOAT_JOB.

hosts() { awk '!seen[$1]++ { print $1 }' "$LSB_DJOB_HOSTFILE"; }

on_host() { # $1: the node; the rest is the command
  local host=$1
  shift
  blaunch -z "$host" "$@"
}

nodes_down() { timeout 20 bhosts -w "$@" | awk '$2 ~ /^unavail|^unreach/ { print $1 }'; }

again() { brequeue "$BAREBOAT_JOB" > /dev/null && echo "$BAREBOAT_JOB"; }
