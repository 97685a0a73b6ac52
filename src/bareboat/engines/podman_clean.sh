# shellcheck shell=bash disable=SC2013
# Kills what Podman left behind: the containers' conmon and, unless a Podman of the user runs now, the process
# that holds the user's namespace: a Podman that joins it at that moment would fail. Then removes Podman's
# directories, unless they contain images, volumes, secrets or networks that the user made meanwhile; and the
# parent directories, if they are empty.
# Expects: forget_pause; $1, an assignment in the environment of Podman's processes, whose value is in conmon's
#   argv; the directories, "", and their parents.

is_pause() { # DIRECTORY in /proc
  local comm=
  { read -r comm < "$1/comm"; } 2> /dev/null
  [ "$comm" = "podman pause" ]
}
declare -A doomed=()
# conmon has a session and an environment of its own, and the container's name in its argv.
for path in $(grep -lzF "${1#*=}" /proc/[0-9]*/cmdline 2> /dev/null); do
  path=${path%/cmdline} comm=
  { read -r comm < "$path/comm"; } 2> /dev/null
  [ "$comm" != conmon ] || doomed[${path#/proc/}]=1
done
for ((level = 0; level < 4 && ${#doomed[@]}; level++)); do # the runtime and the container below it
  for path in /proc/[0-9]*/stat; do
    { IFS= read -r words < "$path"; } 2> /dev/null || continue
    read -r -a words <<< "${words##*) }"
    path=${path%/stat}
    [ -z "${doomed[${words[1]}]-}" ] || doomed[${path#/proc/}]=1
  done
done
[ ${#doomed[@]} = 0 ] || kill -KILL "${!doomed[@]}" 2> /dev/null
for path in $(grep -lzxF "$1" /proc/[0-9]*/environ 2> /dev/null); do
  is_pause "${path%/environ}" || kill -KILL "${path//[!0-9]/}" 2> /dev/null
done
probes="^${1%%=*}=probe-"
shift
running() {
  local path words
  for path in $(grep -lxE 'podman|conmon' /proc/[0-9]*/comm); do
    path=${path%/comm} words=
    IFS= read -r -d '' words < "$path/cmdline" # nothing: it has ended
    if [ -O "$path" ] && [ -n "$words" ]; then return 0; fi
  done 2> /dev/null
  return 1
}
for ((tries = 0; tries < 50; tries++)); do # conmon runs another Podman to clean up
  running || break
  sleep 0.02
done
running && exit
# Also those that other probes left because a Podman was running.
for path in $(grep -lzE "$probes" /proc/[0-9]*/environ 2> /dev/null); do
  ! is_pause "${path%/environ}" || kill -KILL "${path//[!0-9]/}" 2> /dev/null
done
forget_pause dead
for path; do
  [ -n "$path" ] || break
  [ -n "$(find "$path" -xdev \( -name images.json -o -path '*/volumes/*' -o -path '*/secrets/*' \
    -o -name '*.conf*' \) -print -quit 2> /dev/null)" ] || rm -rf --one-file-system -- "$path"
  shift
done
[ $# -lt 2 ] || rmdir -- "${@:2}" 2> /dev/null
true
