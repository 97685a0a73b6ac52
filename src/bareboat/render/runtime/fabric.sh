# shellcheck shell=bash disable=SC2034,SC2154
# Which way the ranks take to other nodes.
# Expects: $by_sockets, $by_fabric: patterns.

# The way that the ranks take to other nodes, by what their libraries say of themselves.
# $1: a pattern, $2…: files and folders; the files that have it. Containers may write them: no link is
# followed, and nothing is read that is no file, or larger than such words are.
saying() {
  find "${@:2}" -maxdepth 1 -type f -size -65536k -exec grep -laE -- "$1" {} + 2> /dev/null
}

fabric_way() { # $@: files and folders with their words
  if saying "$by_sockets" "$@" | grep -q .; then
    echo sockets
  elif saying "$by_fabric" "$@" | grep -q .; then
    echo fabric
  fi
}
