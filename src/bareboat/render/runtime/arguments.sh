# shellcheck shell=bash disable=SC2034,SC2154
# What this script does on a cluster.
# Expects: the script's arguments.

# The scheduler starts this script on the first node, which starts it again on every node:
# bash SCRIPT --node|--rank NODE RUN CONTROL MASTER PORT WHAT;  bash SCRIPT --signal NODE RUN CONTROL NAME;
# bash SCRIPT --bring|--leave NODE RUN CONTROL TRIES.
# NODE is a number, or the name of the variable with the number. No container sees the directory CONTROL; the
# ranks write to another one beside it.
part=--first
case ${1:-} in
  --node | --rank)
    part=$1 what=$7 BAREBOAT_NODE=$(($2)) BAREBOAT_RUN=$3 BAREBOAT_CONTROL=$4
    BAREBOAT_MASTER=$5 BAREBOAT_PORT=$6
    ;;
  --signal | --bring | --leave)
    part=$1 BAREBOAT_RUN=$3 BAREBOAT_CONTROL=$4 what=${5:-1}
    ;;
esac
read -r BAREBOAT_HOST < /proc/sys/kernel/hostname # the output of uname -n, without starting a program
HERE=" on $BAREBOAT_HOST"
