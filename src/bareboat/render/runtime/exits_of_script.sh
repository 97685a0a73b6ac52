# shellcheck shell=bash disable=SC2034,SC2154
# Exit codes of ranks, as kept by this script: lines RANK CODE, in the order in which they ended.
# Expects: $BAREBOAT_CONTROL, $BAREBOAT_NODE.

exits_of_run() { cat "$BAREBOAT_CONTROL"/exits.* 2> /dev/null; }
exits_of_node() { cat "$BAREBOAT_CONTROL/exits.$BAREBOAT_NODE" 2> /dev/null; }
