# shellcheck shell=bash disable=SC2034,SC2154
# The beginning of the script of a further way to start the ranks, which the previous script sources.
# Expects: $launch.

script=${BASH_SOURCE[0]}
printf 'bareboat: the ranks are started by %s\n' "$launch" >&2
