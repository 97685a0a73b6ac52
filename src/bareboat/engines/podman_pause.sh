# shellcheck shell=bash
# Remove the file with the number of Podman's pause process if the number is of another process.
#
# Podman joins the user namespace of the process whose number is in a file, and fails if the number belongs to
# another process by now: when Podman's has been killed and processes are numbered from the beginning again.
# Expects: $XDG_RUNTIME_DIR, unless Podman uses its own.

forget_pause() { # $1: "dead" to remove the file also when there is no such process, which Podman sees itself
  local file pid comm
  for file in {"${XDG_RUNTIME_DIR:-/run/user/$UID}","/tmp/podman-run-$UID"}/libpod/tmp/pause.pid; do
    pid='' comm=''
    [[ -f $file && -O $file ]] && { read -r pid < "$file"; } 2> /dev/null # without an end of line
    [[ $pid =~ ^[0-9]+$ ]] || continue
    { read -r comm < "/proc/$pid/comm"; } 2> /dev/null
    case ${comm:-${1-}} in podman* | catatonit | "") ;; *) rm -f -- "$file" ;; esac
  done
}
