# shellcheck shell=bash disable=SC2034,SC2154
# The transport of the ranks between nodes.
# Expects: $by_sockets, $by_fabric: patterns.

# The way that the ranks take to other nodes, from their libraries' logs.
# $1: a pattern, $2…: files and directories; prints the files that match. Containers may write them: follow no
# link, and read only files of a plausible size.
saying() {
  find "${@:2}" -maxdepth 1 -type f -size -65536k -exec grep -laE -- "$1" {} + 2> /dev/null
}

fabric_way() { # $@: files and directories with the libraries' logs
  if saying "$by_sockets" "$@" | grep -q .; then
    echo sockets
  elif saying "$by_fabric" "$@" | grep -q .; then
    echo fabric
  fi
}
