#!/usr/bin/env bash
# Prepares a machine that has PyTorch, and nothing else, for the benches of this folder, without a network: installs
# this checkout for `python3` and the engines that were brought along, makes an ordinary user, and runs a command as
# that user.
#
#   bench/gpu/prepare.sh FOLDER COMMAND…
#
# FOLDER: *.whl, the wheels of locks/core.txt and of hatchling; if wanted *.deb, engines for this distribution with
# what they need (charliecloud-runtime, podman, crun, proot, uidmap …), of which nothing replaces a newer version;
# and *.tar.xz, unpacked at /, such as the Apptainer that tests/lab/install-tools.sh makes.
set -euo pipefail

folder=$1
shift
python3 -m pip install --quiet --no-index --no-deps "$folder"/*.whl
python3 -m pip install --quiet --no-index --no-deps --no-build-isolation .
if compgen -G "$folder/*.deb" >/dev/null; then
  # A container engine that was refused is reported by the bench; the rest goes on.
  DEBIAN_FRONTEND=noninteractive dpkg --install --refuse-downgrade --skip-same-version --force-depends \
    --force-confold "$folder"/*.deb >/tmp/prepare-dpkg.log 2>&1 || tail -n 15 /tmp/prepare-dpkg.log >&2
fi
for archive in "$folder"/*.tar.xz; do
  [ ! -e "$archive" ] || python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall("/", filter="tar")' "$archive"
done
# useradd gives a range in them only if they are there.
touch /etc/subuid /etc/subgid
id ada >/dev/null 2>&1 || useradd --create-home --shell /bin/bash ada
# The folder of the benches may be in a home that only root enters.
cp -r bench/gpu ~ada/bench
chown -R ada: ~ada
python=$(python3 -c 'import sys; print(sys.executable)')
exec su ada -c "cd ~/bench; export PATH='$(dirname "$python")':\$PATH; $*"
