# shellcheck shell=bash disable=SC2034,SC2154
# Keep a command's output where its launcher does not.
# Expects: $by_lines.

keep() { # $1: a file. By complete lines where several ranks become one stream; otherwise as it arrives
  trap '' TERM INT HUP
  if [ -n "$by_lines" ]; then exec sed -u "w $1"; else exec tee "$1"; fi
}

keep_output() { # in $1.out and $1.err, and to the original streams
  exec 3> >(keep "$1.out")
  output=$!
  exec 4> >(keep "$1.err" >&2)
  errors=$!
}

output_kept() { # wait for the last lines, but not for processes that hold the pipe after the rank's end
  local attempt
  for attempt in {1..100}; do
    kill -0 "$output" 2> /dev/null || kill -0 "$errors" 2> /dev/null || break
    sleep 0.01
  done
}
