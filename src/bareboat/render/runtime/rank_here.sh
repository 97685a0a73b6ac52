# shellcheck shell=bash disable=SC2034,SC2154
# On this machine a program starts this script again for every rank.
# Expects: the arguments --rank RUN CONTROL RUN_DIR PORT WHAT, or others.

part=--first
if [ "${1:-}" = --rank ]; then # bash SCRIPT --rank RUN CONTROL RUN_DIR PORT WHAT
  part=$1 BAREBOAT_RUN=$2 BAREBOAT_CONTROL=$3 BAREBOAT_RUN_DIR=$4 BAREBOAT_PORT=$5 what=$6
  BAREBOAT_SCRIPT=$BAREBOAT_RUN
fi
BAREBOAT_NODE=0 BAREBOAT_MASTER=127.0.0.1 BAREBOAT_INTERFACE=lo BAREBOAT_JOB=$$
read -r BAREBOAT_HOST < /proc/sys/kernel/hostname
