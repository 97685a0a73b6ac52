# shellcheck shell=bash disable=SC2034,SC2154
# A secret for a run on this machine.
# Expects: nothing.

# By this the run's processes know each other. Not exported: only what the launcher starts is given it.
unset BAREBOAT_SECRET
BAREBOAT_SECRET=$(head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n')
