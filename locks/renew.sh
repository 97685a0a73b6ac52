#!/usr/bin/env bash
# Write the lock files anew: the newest versions that pyproject.toml admits, with the hashes of all their files
# on PyPI, for every Python and machine. Requires uv (https://docs.astral.sh/uv/). Then run the tests.
#   core.txt   `bareboat` alone        signatures.txt   with the extra of that name
#   run.txt    what `make prove` needs   test.txt         what `make test` needs
#   docs.txt   what `make docs` needs
set -euo pipefail
cd "$(dirname "$0")/.."

compile() { # NAME, EXTRAS
  local name=$1 extras=()
  shift
  for extra; do extras+=(--extra "$extra"); done
  # PyTorch and what only its build with CUDA needs: see unhashed.txt.
  uv pip compile --quiet --no-config --universal --python-version 3.11 \
    --upgrade --generate-hashes --no-header --no-annotate "${extras[@]}" pyproject.toml locks/build.in |
    awk '/^[^ ]/ { keep = !/^(torch|triton|nvidia-[a-z0-9-]+|cuda-[a-z-]+)==/ } keep' >"locks/$name.txt.new"
  mv "locks/$name.txt.new" "locks/$name.txt"
}

compile core
compile signatures signatures
compile run study example
compile docs study docs
compile test study example docs test
