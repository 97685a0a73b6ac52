# shellcheck shell=bash disable=SC2034,SC2154
# The part --signal, which the first node starts on every node.
# Expects: $part, $what; deliver.sh.

if [ "$part" = --signal ]; then # from the first node
  deliver "$what"
  exit 0 # otherwise Slurm kills this part on the slower nodes
fi
