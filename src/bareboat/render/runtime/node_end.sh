# shellcheck shell=bash disable=SC2034,SC2154
# The end of a node's part, whose exit code ends the other nodes' parts.
# Expects: $code, $BAREBOAT_NODE, $BAREBOAT_NODES, $BAREBOAT_CONTROL; exits_of_node, let_save.sh.

echo "$code" >> "$BAREBOAT_CONTROL/over.$BAREBOAT_NODE"
[ "$code" -eq 0 ] || ! exits_of_node | grep -q ' 75$' || let_save over "$BAREBOAT_NODES"
