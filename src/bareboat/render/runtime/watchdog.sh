# shellcheck shell=bash disable=SC2034,SC2154
# Detect whether the run hangs: see render/watchdog.py.
# Expects: $quiet_limit_s, $look_s, $units, $unit_ranks, $world_size, $py_spy, $mixed_output, $rank_logs,
#   $unit; processes.sh, at_exit.sh.

# The watchdog: the run hangs if no rank prints a line or reports a step for $quiet_limit_s seconds.
set_watch() {
  silence=$BAREBOAT_CONTROL/watch stacks=$BAREBOAT_CONTROL/stacks
}

begin_watchdog() { # before the ranks are started, once
  set_watch
  rm -f "$silence"/{asked,verdict,quiet.*,stacks.*,stopped.*,over.*}
  [ ! -d "$stacks" ] || mv "$stacks" "$stacks.$((${starts:-2} - 1))" # of an earlier start
  mkdir -p "$silence" "$BAREBOAT_RUN_DIR/progress" || exit 3
}

count() { # $1: number of units with this file
  local found=("$silence/$1".*)
  if [ -e "${found[0]}" ]; then echo "${#found[@]}"; else echo 0; fi
}

ranks_here() { # the ranks of this unit
  local k
  for ((k = 0; k < unit_ranks; k++)); do echo "$((unit * unit_ranks + k))"; done
}

signs() { # of life: the files with the output and reports of the ranks here, which change
  local rank log
  for rank in $(ranks_here); do
    log=${rank_logs:+$rank_logs/$rank}
    stat -c '%n %s %y' "${log:-$silence/$unit}".{out,err} "$BAREBOAT_RUN_DIR/progress/$rank" 2> /dev/null
  done
}

rank_of() { # $1: a process of the run; nothing for launchers, which are not ranks
  local rank
  rank=$(tr '\0' '\n' < "/proc/$1/environ" 2> /dev/null | sed -n 's/^RANK=\([0-9]*\)$/\1/p' | tail -n 1)
  [ "$world_size" -gt 1 ] || rank=0
  [ -z "$rank" ] || [ "$((rank / unit_ranks))" -ne "$unit" ] || echo "$rank"
}

is_python() {
  grep -qs python "/proc/$1/maps"
}

find_py_spy() {
  local found
  for found in "$py_spy" "$(command -v py-spy)"; do
    [ -x "$found" ] && "$found" --version > /dev/null 2>&1 && echo "$found" && return 0
  done
}

keep_stacks() { # the stacks of every rank here; reading them does not disturb the ranks
  local pid rank spy
  mkdir -p "$stacks"
  for rank in $(ranks_here); do : > "$stacks/$rank"; done
  spy=$(find_py_spy)
  for pid in $(run_pids | sort -n); do
    rank=$(rank_of "$pid")
    [ -n "$rank" ] || continue
    {
      printf '# process %s on %s: %s\n' "$pid" "$BAREBOAT_HOST" \
        "$(tr '\0\n' '  ' < "/proc/$pid/cmdline" 2> /dev/null | cut -c 1-200)"
      # Without stopping it: it does not move anyway, and other programs cannot stop PRoot's children.
      [ -z "$spy" ] || ! is_python "$pid" ||
        timeout 15 "$spy" dump --nonblocking --full-filenames --pid "$pid" 2>&1 | sed '/^Stack backtrace/,$d'
      printf '# state %s; in the kernel: %s\n\n' \
        "$(sed -n 's/^State:[[:space:]]*//p' "/proc/$pid/status" 2> /dev/null)" \
        "$(cat "/proc/$pid/wchan" 2> /dev/null)"
    } >> "$stacks/$rank"
  done
}

ask_python() { # ranks whose stack could not be read print it themselves and end (faulthandler)
  local dying='Fatal Python error: Aborted' shared=/dev/null
  local pid rank main=() asked=() caught file log deadline
  for pid in $(run_pids | sort -n); do
    rank=$(rank_of "$pid")
    if [ -z "$rank" ] || [ -n "${main[rank]:-}" ] || ! is_python "$pid"; then continue; fi
    main[rank]=$pid
    ! grep -qs '^Thread ' "$stacks/$rank" || continue
    caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$pid/status" 2> /dev/null)
    (((0x${caught:-0} >> 5) & 1)) && asked[rank]=$pid
  done
  # The end of one rank is an error in the others, at once: so first stop all of them, on all nodes; when they
  # continue, they print.
  [ "${#asked[@]}" -eq 0 ] || kill -s STOP "${asked[@]}" 2> /dev/null
  : > "$silence/stopped.$unit"
  [ "${#asked[@]}" -gt 0 ] || return 1
  wait_for stopped
  kill -s ABRT "${asked[@]}" 2> /dev/null
  kill -s CONT "${asked[@]}" 2> /dev/null
  deadline=$((SECONDS + 5))
  # In mpirun's output the rank of a line is unknown.
  [ -n "$mixed_output" ] || shared=$silence/$unit.err
  for rank in "${!asked[@]}"; do
    log=${rank_logs:+$rank_logs/$rank.err}
    while :; do
      file=$(find "${log:-$shared}" -maxdepth 0 -type f -size -65536k \
        -exec grep -laF "$dying" {} + 2> /dev/null)
      [ -n "$file" ] && ! kill -0 "${asked[rank]}" 2> /dev/null && break
      [ "$SECONDS" -lt "$deadline" ] || break
      sleep 0.1
    done
    [ -z "$file" ] || tail -c 1048576 "$file" | sed -n "/$dying/,\$p" >> "$stacks/$rank"
  done
}

where_it_stands() { # $1: a rank's stacks; prints its innermost function and line of the user's code
  awk '
    function base(path) { sub(/.*\//, "", path); return path }
    function frame(name, file, line) {
      if (closed) return
      if (inner == "") { inner = name; inner_at = base(file) ":" line }
      if (own != "" || file ~ /(site|dist)-packages\/|\/lib(64)?\/python[0-9]|^</) return
      own = base(file) ":" line
    }
    /^# state / {
      if (inner != "") closed = 1
      waits = $0; sub(/.*kernel: */, "", waits)
      # do_wait: a shell around the relevant process
      if ((first == "" || first == "do_wait") && waits !~ /^0?$/) first = waits
    }
    /^Process [0-9]+:/ { pid = $2 + 0 }
    /^Thread / && !closed && !main && (/"MainThread"$/ || $2 == pid) {
      inner = own = ""; other = 0; main = 1; next
    }
    /^Current thread / { inner = own = ""; closed = 0; other = 0; next }
    /^Thread /         { if (inner != "" || main) other = 1; next }
    other              { next }
    /^    [^ ].* \(.*\)$/ {
      text = substr($0, 5); at = index(text, " (")
      name = substr(text, 1, at - 1); file = substr(text, at + 2, length(text) - at - 2)
      line = "?"
      if (file ~ /:[0-9]+$/) { line = file; sub(/.*:/, "", line); sub(/:[0-9]+$/, "", file) }
      frame(name, file, line)
    }
    /^  File ".*", line [0-9?]+ in / {
      text = substr($0, 9); line = text; sub(/.*", line /, "", line); name = line
      sub(/ in .*/, "", line); sub(/^[0-9?]+ in /, "", name); sub(/", line [0-9?]+ in .*/, "", text)
      frame(name, text, line)
    }
    END {
      if (inner != "") where = inner " (" (own != "" ? own : inner_at) ")"
      else if (first != "") where = first " (in the kernel)"
      else where = "an unknown place"
      gsub(/[[:cntrl:]]/, "?", where)
      print where
    }' "$1"
}

compare() { # lines RANK NODE WHERE: print where most ranks are, and which ranks are elsewhere
  sort -n | awk '
    function ranks(list, n, numbers, k, from, text) { # 0 1 2 5 -> 0-2, 5
      n = split(list, numbers, " "); text = ""; from = 1
      for (k = 1; k <= n; k++) if (k == n || numbers[k + 1] != numbers[k] + 1) {
        text = text (text == "" ? "" : ", ") numbers[from] (k > from ? "-" numbers[k] : ""); from = k + 1
      }
      return (n > 1 ? "ranks " : "rank ") text
    }
    function nodes(list, n, names, seen, k, text) {
      n = split(list, names, " "); text = ""
      for (k = 1; k <= n; k++) if (!(names[k] in seen)) { seen[names[k]]; text = text " " names[k] }
      n = split(text, names, " ")
      return n > 3 ? n " nodes" : names[1] (n > 1 ? ", " names[2] : "") (n > 2 ? ", " names[3] : "")
    }
    {
      total++; rank = $1; node = $2; where = $0; sub(/^[^ ]* [^ ]* /, "", where)
      if (!(where in size)) order[++groups] = where
      size[where]++; who[where] = who[where] " " rank; on[where] = on[where] " " node
      if (size[where] > size[most]) most = where
    }
    END {
      if (!total) exit
      if (groups == 1) print (total > 1 ? "all " total " ranks are" : "the rank is") " in " most
      if (groups == 1) exit
      if (size[most] * 2 > total) print size[most] " of " total " ranks are in " most
      else most = "" # no majority: no rank is singled out
      for (k = 1; k <= groups; k++) if (order[k] != most) {
        if (++told > 8) { print groups - k + 1 " more places"; exit }
        where = order[k]
        print ranks(who[where]) " on " nodes(on[where]) (size[where] > 1 ? " are" : " is") " in " where
      }
    }'
}

wait_for() { # until all units have the file $1
  local attempt
  for attempt in {1..150}; do
    [ "$(count "$1")" -lt "$units" ] || return 0
    sleep 0.2
  done
}

give_up() { # the run hangs; keep what can be learned from the ranks here, and end them with the others
  local rank
  ask_python
  for rank in $(ranks_here); do
    printf '%s %s %s\n' "$rank" "$BAREBOAT_HOST" "$(where_it_stands "$stacks/$rank")"
  done > "$stacks/of.$unit"
  : > "$silence/over.$unit"
  wait_for over
  end_run
}

judge() { # by the first unit, while it is quiet; when all are, they keep the stacks, and must still be quiet
  if [ "$(count quiet)" -lt "$units" ]; then
    asked_for_s=0
    rm -f "$silence/asked"
    return 0
  fi
  : > "$silence/asked"
  asked_for_s=$((asked_for_s + look_s))
  if [ "$(count stacks)" -ge "$units" ] || [ "$asked_for_s" -gt "$((60 + look_s))" ]; then
    : > "$silence/verdict"
  fi
}

watch_over() { # Counts polls, not the clock: a job that its scheduler suspends does not hang.
  local before=none now quiet_s=0 told='' kept='' asked_for_s=0
  trap 'kill "$!" 2>/dev/null; exit' TERM
  while
    sleep "$look_s" &
    wait "$!"
  do
    kill -0 "$$" 2> /dev/null || return 1
    if [ -e "$silence/verdict" ]; then
      give_up
      return "$?"
    fi
    now=$(signs)
    if [ "$now" != "$before" ]; then
      before=$now quiet_s=0
      [ -z "$told$kept" ] || rm -f "$silence/quiet.$unit" "$silence/stacks.$unit"
      told='' kept=''
      continue
    fi
    quiet_s=$((quiet_s + look_s))
    [ "$quiet_s" -ge "$quiet_limit_s" ] || continue
    [ -n "$told" ] || : > "$silence/quiet.$unit"
    told=1
    [ "$unit" -ne 0 ] || judge
    if [ -z "$kept" ] && [ -e "$silence/asked" ]; then
      keep_stacks
      [ "$(signs)" = "$before" ] || continue
      : > "$silence/stacks.$unit"
      kept=1
    fi
  done
}

start_watchdog() {
  watch_over < /dev/null > /dev/null 2>&1 &
  watchdog=$!
  at_exit "kill $watchdog 2> /dev/null"
}

tell_hang() {
  find "$stacks" -name 'of.*' -exec cat {} + | compare > "$stacks/summary"
  printf 'bareboat: no rank has printed or reported anything for %s s: the run hangs and is terminated\n' \
    "$quiet_limit_s" >&2
  sed 's/^/bareboat:   /' "$stacks/summary" >&2
  printf 'bareboat: the stacks of all ranks are in %s\n' "$stacks" >&2
}

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
