#!/usr/bin/env bash
# The built-in studies galileo, lincoln and sharing at the paper's scale on one GPU, in at most 40 minutes, and their
# tables and reports. As an ordinary user, in the environment that has PyTorch with CUDA, Keras and Bareboat:
#
#   bench/gpu/studies.sh [DIRECTORY]        default: ./gpu-studies
#
# The matrix of galileo has one rank, since there is one GPU. sharing includes MPS if its daemon can be started.
# Not tested on a GPU yet.
set -euo pipefail

directory=${1:-gpu-studies}
mkdir -p "$directory"
cd "$directory"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | tee gpu.txt

files() { # STUDY: its files, as the package has them
  local source
  source=$(python3 -c 'import bareboat, sys; print(bareboat.__path__[0] + "/studies/" + sys.argv[1])' "$1")
  mkdir -p "$1"
  find "$source" -maxdepth 1 -type f -exec cp -n {} "$1/" \;
}

measure() { # STUDY, TIME
  bareboat prove "$1/paper.toml" --within "$2" --output "$1.html" 2>"$1.log" | tee "$1.txt" || {
    tail -n 20 "$1.log" >&2
    failed=1
  }
}

failed=0
files galileo
sed -i 's/^"topology.ranks_per_node" = .*/"topology.ranks_per_node" = [1]/' galileo/paper.toml
measure galileo 20m
files lincoln
measure lincoln 8m

files sharing
export CUDA_MPS_PIPE_DIRECTORY=$PWD/mps CUDA_MPS_LOG_DIRECTORY=$PWD/mps
mkdir -p mps
if command -v nvidia-cuda-mps-control >/dev/null && nvidia-cuda-mps-control -d; then
  trap 'echo quit | nvidia-cuda-mps-control' EXIT
else
  echo "MPS is not available: sharing by time slices only" | tee mps.txt
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  sed -i 's/^share = .*/share = ["slices"]/' sharing/paper.toml
fi
measure sharing 10m
ls -l ./*.html ./*/*-*.csv
exit "$failed"
