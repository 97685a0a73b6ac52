# shellcheck shell=bash disable=SC2034,SC2154
# A secret for a run on this machine.
# Expects: nothing.

# The run's processes authenticate each other with it. Not exported: only processes of the launcher get it.
unset BAREBOAT_SECRET
BAREBOAT_SECRET=$(head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n')
