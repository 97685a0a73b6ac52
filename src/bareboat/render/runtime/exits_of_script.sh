# shellcheck shell=bash disable=SC2034,SC2154
# Exit codes of ranks, as this script keeps them: lines RANK CODE, in the order of their ends.
# Expects: $BAREBOAT_CONTROL, $BAREBOAT_NODE.

exits_of_run() { cat "$BAREBOAT_CONTROL"/exits.* 2> /dev/null; }
exits_of_node() { cat "$BAREBOAT_CONTROL/exits.$BAREBOAT_NODE" 2> /dev/null; }
