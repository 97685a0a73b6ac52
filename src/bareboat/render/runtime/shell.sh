# shellcheck shell=bash disable=SC2034,SC2154
# The beginning of the script that opens a shell in a job's container.
# Expects: the arguments RUN CONTROL.

# A shell in the container of a job that runs on this node: bash SCRIPT RUN CONTROL.
BAREBOAT_RUN=$1 BAREBOAT_CONTROL=$2
BAREBOAT_RUN_DIR=${BAREBOAT_CONTROL%/*}/ranks
read -r BAREBOAT_HOST < /proc/sys/kernel/hostname
HERE=" on $BAREBOAT_HOST"
