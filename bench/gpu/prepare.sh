#!/usr/bin/env bash
# Prepares a machine that has PyTorch, and nothing else, for the benches of this folder, without a network: installs
# this checkout for `python3`, makes an ordinary user, and runs a command as that user.
#
#   bench/gpu/prepare.sh WHEELS COMMAND…     WHEELS: a folder with the wheels of locks/core.txt and of hatchling
set -euo pipefail

wheels=$1
shift
python3 -m pip install --quiet --no-index --no-deps "$wheels"/*.whl
python3 -m pip install --quiet --no-index --no-deps --no-build-isolation .
id ada >/dev/null 2>&1 || useradd --create-home --shell /bin/bash ada
# The folder of the benches may be in a home that only root enters.
cp -r bench/gpu ~ada/bench
chown -R ada: ~ada
python=$(python3 -c 'import sys; print(sys.executable)')
exec su ada -c "cd ~/bench; export PATH='$(dirname "$python")':\$PATH; $*"
