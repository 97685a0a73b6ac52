# shellcheck shell=bash disable=SC1090,SC2034,SC2317
# In a library beside its script: bash parses what follows only in processes that call `seldom`.
# Expects: nothing.

seldom() { parsed=all && . "${BASH_SOURCE[0]}" && seldom() { :; }; }
[ -n "${parsed:-}" ] || return 0
