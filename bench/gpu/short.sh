#!/usr/bin/env bash
# What a GPU that is lent for ten minutes can show, by value: does it work in every engine that is here
# (contract.py), for what frameworks do (frameworks.py), by the shims; the study sharing at the paper's scale, by
# time slices and by MPS; the first step in a container with kept kernels (kept.py); the health certificate
# (certificate.py); a study at a margin of 2 % (pair.toml); parts of galileo and lincoln at the paper's scale. As an
# ordinary user, in the environment that has PyTorch with CUDA, Keras and Bareboat:
#
#   bench/gpu/short.sh DIRECTORY        UNTIL=$(date -d '9 minutes' +%s): when it must have ended; 510 s without
#
# Each part has its own limit and log in DIRECTORY, and a part that fails or hangs does not stop the others. A study
# that is cut short is reported with the runs that it has. PARTS="contract sharing" and ENGINES="podman" choose.
set -uo pipefail

directory=$(mkdir -p "$1" && cd "$1" && pwd)
end=$((SECONDS + ${UNTIL:-$(($(date +%s) + 510))} - $(date +%s)))
parts=${PARTS:-contract capture shims frameworks start certificate kept pair sharing mps galileo lincoln}
here=$(cd "$(dirname "$0")" && pwd)
python=$(python3 -c 'import sys; print(sys.executable)')
export PYTHONUNBUFFERED=1 BAREBOAT_STORE=${BAREBOAT_STORE:-$HOME/store}

say() { printf '%4d s  %s\n' "$SECONDS" "$*" | tee -a "$directory/progress.txt"; }
wanted() { [[ " $parts " == *" $1 "* ]]; }

part() { # NAME, LIMIT in s, COMMAND…: no longer than its limit and than the time that is left
  local name=$1 limit=$2 code=0
  shift 2
  [ "$limit" -lt $((end - SECONDS)) ] || limit=$((end - SECONDS))
  if [ "$limit" -lt 10 ]; then
    say "$name: no time left"
    return 1
  fi
  say "$name: begins, at most $limit s"
  timeout -s INT -k 10 "$limit" "$@" >"$directory/$name.txt" 2>"$directory/$name.log" </dev/null || code=$?
  say "$name: exit code $code"
  tail -n "${TAIL:-12}" "$directory/$name.txt"
  [ "$code" -eq 0 ] || tail -n 6 "$directory/$name.log"
  return "$code"
}

# The driver is set up anew for the first process on a GPU, which takes seconds; an open device keeps it up.
if [ -w /dev/nvidia0 ]; then exec 9<>/dev/nvidia0; fi
nvidia-smi --query-gpu=name,driver_version,memory.total,compute_mode --format=csv,noheader >"$directory/gpu.txt" 2>&1
{ id; uname -a; sysctl kernel.apparmor_restrict_unprivileged_userns kernel.unprivileged_userns_clone \
  user.max_user_namespaces; cat /proc/mounts; ls -l /dev/nvidia* /dev/fuse /usr/local/nvidia /usr/local/nvidia/bin; \
  type -a nvidia-cuda-mps-control ch-run podman apptainer proot crun newuidmap; } >"$directory/machine.txt" 2>&1
cat "$directory/gpu.txt"

# Beside the contract, the environment is captured, once for all studies.
if wanted capture; then
  # A job of it makes its flat tree as well. Every later call names the interpreter as here.
  (timeout 170 bareboat run --engine bubblewrap --python "$python" -- true >"$directory/capture.txt" 2>&1 </dev/null
  say "capture: exit code $?"
  bareboat doctor >"$directory/doctor.txt" 2>&1 </dev/null) &
fi
if wanted contract; then
  engines=()
  for engine in ${ENGINES:-bubblewrap charliecloud apptainer udocker:P1 udocker:P2 podman}; do
    engines+=(--engine "$engine")
  done
  TAIL=30 part contract 150 python3 "$here/contract.py" --limit 40 "${engines[@]}"
fi
wait

image() { # the newest image of the store
  bareboat image ls --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["images"][-1]["digest"])'
}

shims() {
  local digest program='import torch; x = torch.ones(8, 8, device="cuda"); print("sum", float((x @ x).sum()))'
  digest=$(image)
  bareboat image tag "$digest" gpu:latest
  bareboat shim --force --into "$directory/shims"
  export PATH=$directory/shims:$PATH
  set -x
  # Of a directory no variables are known.
  APPTAINERENV_PREPEND_PATH=$(dirname "$python") singularity exec --nv \
    "$BAREBOAT_STORE/flat/sha256/${digest#sha256:}" python -c "$program"
  singularity exec --nv "$BAREBOAT_STORE/flat/sha256/${digest#sha256:}" nvidia-smi -L
  udocker create --name=gpu gpu:latest
  udocker setup --nvidia gpu
  udocker run gpu python -c "$program"
}

if wanted shims; then
  export -f shims image
  export directory python
  TAIL=30 part shims 90 bash -c shims
  tail -n 30 "$directory/shims.log"
fi
if wanted frameworks; then TAIL=30 part frameworks 240 python3 "$here/frameworks.py"; fi
if wanted certificate; then TAIL=60 part certificate 150 python3 "$here/certificate.py" --jobs "${JOBS:-10}"; fi

# The time until a program can compute, warm: it decides how many points of sharing fit.
start_s=15
if wanted start; then
  began=$SECONDS
  part start 60 python3 -X importtime -c '
import time; t = time.perf_counter(); import torch; u = time.perf_counter()
if torch.cuda.is_available(): torch.zeros(1, device="cuda")
print(f"import torch {u - t:.2f} s, start of CUDA {time.perf_counter() - u:.2f} s")'
  start_s=$((SECONDS - began))
fi

files() { # STUDY: its files, as the package has them
  local source
  source=$(python3 -c 'import bareboat, sys; print(bareboat.__path__[0] + "/studies/" + sys.argv[1])' "$1")
  mkdir -p "$directory/$1"
  find "$source" -maxdepth 1 -type f -exec cp -n {} "$directory/$1/" \; 2>/dev/null
}

measure() { # STUDY, LIMIT in s, REPEATS
  part "$1" "$2" bareboat prove "$directory/$1/paper.toml" --repeats "$3" \
    --python "$python" --output "$directory/$1.html"
  if [ ! -e "$directory/$1.html" ]; then
    timeout 30 bareboat report "$1" --output "$directory/$1.html" >>"$directory/$1.txt" 2>>"$directory/$1.log"
    tail -n 12 "$directory/$1.txt"
  fi
}

share() { # STUDY, HOW the device is shared
  files sharing
  [ "$1" = sharing ] || cp -rn "$directory/sharing" "$directory/$1"
  sed -i "s/^share = .*/share = [\"$2\"]/; s/^name = .*/name = \"$1\"/" "$directory/$1/paper.toml"
  # 18 runs, or 12 without the two jobs.
  if [ $((18 * (start_s + 4))) -gt 150 ]; then
    sed -i 's/^"topology.ranks_per_node" = .*/"topology.ranks_per_node" = [1, 4]/' "$directory/$1/paper.toml"
  fi
  measure "$1" 150 2
}

if wanted kept; then
  # shellcheck disable=SC2086
  TAIL=14 part kept "${KEPT_LIMIT:-330}" python3 "$here/kept.py" --output "$directory/kept.jsonl" ${KEPT_FLAGS:-}
fi
if wanted pair; then
  # shellcheck disable=SC2086
  TAIL=30 part pair "${PAIR_LIMIT:-330}" bareboat prove "$here/pair.toml" --python "$python" \
    --output "$directory/pair.html" ${PAIR_FLAGS:-}
fi

# Two studies: where MPS does not work in a container, the time slices are measured all the same.
if wanted sharing; then share sharing slices; fi
if wanted mps; then
  export CUDA_MPS_PIPE_DIRECTORY=$directory/mps CUDA_MPS_LOG_DIRECTORY=$directory/mps
  mkdir -p "$directory/mps"
  PATH=$PATH:/usr/local/nvidia/bin
  if command -v nvidia-cuda-mps-control >/dev/null &&
    timeout 20 nvidia-cuda-mps-control -d >"$directory/mps/start.txt" 2>&1 9<&-
  then
    share sharing-mps mps
    { echo get_server_list; echo quit; } | timeout 20 nvidia-cuda-mps-control >"$directory/mps/servers.txt" 2>&1
    cat "$directory/mps/servers.txt"
  else
    say "MPS is not available"
  fi
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
fi
if wanted galileo; then
  files galileo
  sed -i 's/^"topology.ranks_per_node" = .*/"topology.ranks_per_node" = [1]/; s/^model = .*/model = ["resnet50"]/
    s/^batch = .*/batch = [64]/' "$directory/galileo/paper.toml"
  # Half of the time that is left, or all of it.
  measure galileo $(((end - SECONDS) / $(wanted lincoln && echo 2 || echo 1))) 2
fi
if wanted lincoln; then
  files lincoln
  sed -i 's/^network = .*/network = ["snn"]/' "$directory/lincoln/paper.toml"
  measure lincoln $((end - SECONDS)) 2
fi
tar -C "$BAREBOAT_STORE" -czf "$directory/runs.tar.gz" runs
say "end"
