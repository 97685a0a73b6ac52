#!/usr/bin/env bash
# Installs the real tools that the contract tests and the benchmarks speak to, on Debian 12 (amd64), as root:
# podman, buildah, skopeo, umoci, charliecloud, docker-registry … from Debian 12 itself, Apptainer from Debian
# sid, udocker (with an engine made of Debian's programs) and podman-hpc from PyPI, and what GPU drivers are
# tried with. Harmless when run again.
#
#   sudo tests/lab/install-tools.sh [--dry-run]
#
#   PREFIX=/opt/bareboat-lab   where Apptainer, udocker, NVIDIA's libraries and small images go
#   BIN=/usr/local/bin         where `apptainer`, `singularity` and `udocker` are put
set -euo pipefail

prefix=${PREFIX:-/opt/bareboat-lab}
bin=${BIN:-/usr/local/bin}
udocker_version=1.3.17
podman_hpc_version=1.2.2
# NVIDIA's driver without its kernel module: VERSION SUITE.
nvidia=('535 bookworm' '550 trixie')
nvidia_packages=(
  libcuda1 libnvidia-ml1 libnvidia-ptxjitcompiler1 libnvidia-pkcs11-openssl3 nvidia-smi nvidia-cuda-mps
)
# Images with another glibc than this machine's: GLIBC SUITE. bash brings base-files, which makes /bin and /lib.
glibcs=('2.31 bullseye' '2.41 trixie')
glibc_packages=python3,dash,coreutils,bash

packages=(
  # engines and image tools
  podman buildah skopeo umoci charliecloud charliecloud-builders proot runc crun
  # what they run: user namespaces, overlay, squashfs, networks
  uidmap fuse-overlayfs fuse3 squashfs-tools squashfuse slirp4netns bubblewrap
  # registries, base images, and what the limits are measured with
  docker-registry apache2-utils openssl mmdebstrap busybox-static pigz isal zstd curl
  # a made-up GPU driver
  gcc g++ libc6-dev
  # compilers and programs that captures take along
  clang ffmpeg git r-base-core
  # programs of others, for studies
  fio sysbench
  # completion, in real shells
  zsh fish
  # a browser for the reports, and a reader of what it prints
  chromium poppler-utils
  # for this script
  ca-certificates patchelf python3 python3-venv attr
  # access control lists; the assembler of the other machine that has filters of system calls
  acl binutils-aarch64-linux-gnu
  # the browser of the site's tests, and what shows man pages
  chromium chromium-driver groff man-db
)

say() { printf 'install-tools: %s\n' "$*" >&2; }
die() { say "$1"; [ $# -lt 2 ] || say "try: $2"; exit 1; }

main() {
  case ${1:-} in
    '') ;;
    --dry-run)
      printf 'apt-get install %s\napptainer from sid -> %s\nudocker %s -> %s\npodman-hpc %s -> %s\nlinks in %s\n' \
        "${packages[*]}" "$prefix/apptainer" "$udocker_version" "$prefix/udocker" \
        "$podman_hpc_version" "$prefix/podman-hpc" "$bin"
      printf "NVIDIA's driver %s -> %s\n" "${nvidia[0]}" "$prefix/nvidia" "${nvidia[1]}" "$prefix/nvidia"
      printf 'glibc %s -> %s\n' "${glibcs[0]}" "$prefix/glibc" "${glibcs[1]}" "$prefix/glibc"
      return ;;
    *) die "unknown argument: $1" "$0 --dry-run" ;;
  esac
  [ "$(id -u)" -eq 0 ] || die 'only root can install packages' "sudo $0"
  [ "$(dpkg --print-architecture)" = amd64 ] || die 'only amd64 has been tried'
  umask 022
  export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
  mkdir -p "$prefix" "$bin"
  install_packages
  install_apptainer
  install_udocker
  install_podman_hpc
  local each
  for each in "${nvidia[@]}"; do
    # shellcheck disable=SC2086  # two words
    install_nvidia $each
  done
  for each in "${glibcs[@]}"; do
    # shellcheck disable=SC2086
    install_glibc $each
  done
  for tool in podman podman-hpc buildah skopeo umoci ch-image docker-registry mmdebstrap igzip chromium apptainer udocker; do
    command -v "$tool" >/dev/null || die "$tool is not on PATH after all" "export PATH=$bin:\$PATH"
  done
}

install_packages() {
  local missing=() package
  for package in "${packages[@]}"; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing ${missing[*]}"
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# Debian 12 has no Apptainer. sid's, pinned, would bring sid's C library to the whole machine; so its files
# and the few libraries that it needs go into a folder of their own, and the two programs are told to look
# for their libraries there.
install_apptainer() {
  local home=$prefix/apptainer
  local lib=$home/usr/lib/x86_64-linux-gnu
  if ! "$home/usr/bin/apptainer" --version >/dev/null 2>&1; then
    say "taking Apptainer from sid into $home"
    rm -rf "$home" "$home.new"
    mkdir -p "$home.new"
    fetch "$home.new" sid main apptainer libc6 libseccomp2 libsqlite3-0
    # Links that its build-time paths expect below usr/.
    ln -sfn ../etc "$home.new/usr/etc"
    ln -sfn ../../etc "$home.new/usr/lib/etc"
    ln -sfn ../var "$home.new/usr/lib/var"
    mkdir -p "$home.new/usr/var/lib/apptainer/mnt/session" "$home.new/var/lib/apptainer/mnt/session"
    local program
    for program in usr/bin/apptainer usr/lib/x86_64-linux-gnu/apptainer/bin/starter; do
      # --force-rpath: unlike RUNPATH it also serves the libraries of the libraries.
      patchelf --set-interpreter "$lib/ld-linux-x86-64.so.2" --force-rpath --set-rpath "$lib" \
        "$home.new/$program"
    done
    mv "$home.new" "$home"
    "$home/usr/bin/apptainer" --version >&2 || die 'Apptainer does not start' "ldd $home/usr/bin/apptainer"
  fi
  ln -sfn "$home/usr/bin/apptainer" "$bin/apptainer"
  ln -sfn "$home/usr/bin/apptainer" "$bin/singularity"
}

# NVIDIA's libraries and programs for a version, as Debian's packages lay them out; never on the machine itself.
install_nvidia() {
  local version=$1 suite=$2 folder=$prefix/nvidia/$1 triplet=x86_64-linux-gnu file name
  [ ! -e "$folder/etc/ld.so.cache" ] || return 0
  say "taking NVIDIA's driver $version from $suite into $folder"
  rm -rf "$folder" "$folder.new"
  mkdir -p "$folder.new/etc/alternatives"
  fetch "$folder.new" "$suite" non-free "${nvidia_packages[@]}"
  # The links that the package nvidia-alternative makes.
  for file in "$folder.new/usr/lib/$triplet/nvidia/current"/*.so* "$folder.new/usr/lib/nvidia/current/nvidia-smi"; do
    name=${file##*/}
    case $name in
      nvidia-smi) link_alternative "/usr/bin/$name" "nvidia--$name" ;;
      *.so.*.*) ;;
      *) link_alternative "/usr/lib/$triplet/$name" "nvidia--$name-$triplet" ;;
    esac
  done
  echo "/usr/lib/$triplet" >"$folder.new/etc/ld.so.conf"
  ldconfig -r "$folder.new"
  mv "$folder.new" "$folder"
}

link_alternative() {
  ln -s "/etc/alternatives/$2" "$folder.new$1"
  ln -s "${file#"$folder.new"}" "$folder.new/etc/alternatives/$2"
}

# A small image's files, with Python, of a suite with that glibc.
install_glibc() {
  local folder=$prefix/glibc/$1
  [ ! -d "$folder" ] || return 0
  say "unpacking $glibc_packages of $2 into $folder"
  mkdir -p "${folder%/*}"
  rm -rf "$folder.new"
  mmdebstrap --quiet --mode=root --variant=extract --include="$glibc_packages" "$2" "$folder.new" "$(mirror)"
  chmod -R a+rX "$folder.new"
  mv "$folder.new" "$folder"
}

# shellcheck disable=SC2016  # apt expands these itself
mirror() {
  apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
    awk '$2 == "bookworm" && $1 ~ /debian\/?$/ { print $1; exit }'
}

# fetch FOLDER SUITE COMPONENT PACKAGE…: unpack packages of a suite, verified by Debian's keyring, into a folder.
# The mirror is the machine's own; apt's lists for the suite are kept apart from the machine's.
fetch() {
  local folder=$1 suite=$2 component=$3 work mirror
  shift 3
  work=$(mktemp -d)
  # _apt, the user that apt downloads as, must be able to write there.
  chmod 755 "$work"
  mirror=$(mirror)
  [ -n "$mirror" ] || die 'apt knows no mirror of Debian 12' 'apt-get update'
  mkdir -p "$work"/{lists/partial,cache/archives/partial,state}
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite $component" >"$work/sources.list"
  : >"$work/status"
  local apt=(
    apt-get -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null
    -o Dir::State::Lists="$work/lists" -o Dir::State::status="$work/status" -o Dir::State="$work/state"
    -o Dir::Cache="$work/cache" -o APT::Default-Release= -o Acquire::Languages=none
    -o APT::Sandbox::User=root
    # A mirror that is a snapshot is old. Its signature is checked all the same.
    -o Acquire::Check-Valid-Until=false
  )
  "${apt[@]}" update
  (cd "$work" && "${apt[@]}" download "$@")
  local package
  for package in "$work"/*.deb; do
    dpkg-deb -x "$package" "$folder"
  done
  # sid has /lib merged into /usr/lib; packages that still ship /lib go to the same place.
  if [ -d "$folder/lib" ] && [ ! -L "$folder/lib" ]; then
    cp -a "$folder/lib/." "$folder/usr/lib/" && rm -rf "${folder:?}/lib"
  fi
  rm -rf "$work"
}

# udocker downloads its engine from a server of its own; UDOCKER_TARBALL replaces that by a file, which we
# make of Debian's proot, runc, crun and patchelf.
install_udocker() {
  local home=$prefix/udocker
  # Asked of its metadata: the program itself would make a repository in root's home.
  local have
  have=$("$home/venv/bin/pip" --disable-pip-version-check show udocker 2>/dev/null | sed -n 's/^Version: //p') || true
  if [ "$have" != "$udocker_version" ]; then
    say "installing udocker $udocker_version into $home"
    rm -rf "$home"
    mkdir -p "$home"
    /usr/bin/python3 -m venv "$home/venv"
    "$home/venv/bin/pip" install --quiet --disable-pip-version-check "udocker==$udocker_version"
  fi
  if [ ! -e "$home/engine.tar.gz" ]; then
    local work tree
    work=$(mktemp -d)
    tree=$work/udocker_dir
    mkdir -p "$tree/bin" "$tree/lib"
    cp "$(command -v proot)" "$tree/bin/proot-x86_64"
    cp "$(command -v proot)" "$tree/bin/proot-x86_64-4_8_0"
    cp "$(command -v runc)" "$tree/bin/runc-x86_64"
    cp "$(command -v crun)" "$tree/bin/crun-x86_64"
    cp "$(command -v patchelf)" "$tree/bin/patchelf-x86_64"
    # The engine's version that this udocker asks for.
    echo 1.2.11 >"$tree/lib/VERSION"
    tar -C "$work" -czf "$home/engine.tar.gz.new" udocker_dir
    mv "$home/engine.tar.gz.new" "$home/engine.tar.gz"
    rm -rf "$work"
  fi
  cat >"$bin/udocker" <<SCRIPT
#!/bin/sh
# Made by Bareboat's tests/lab/install-tools.sh: udocker with an engine that needs no download.
: "\${UDOCKER_TARBALL:=$home/engine.tar.gz}"
export UDOCKER_TARBALL
exec "$home/venv/bin/udocker" "\$@"
SCRIPT
  chmod 755 "$bin/udocker"
}

# podman-hpc looks for its helper on PATH, so both are linked to.
install_podman_hpc() {
  local home=$prefix/podman-hpc program
  if [ ! -x "$home/bin/podman-hpc" ]; then
    say "installing podman-hpc $podman_hpc_version into $home"
    rm -rf "$home"
    /usr/bin/python3 -m venv "$home"
    "$home/bin/pip" install --quiet --disable-pip-version-check "podman-hpc==$podman_hpc_version"
  fi
  for program in podman-hpc fuse-overlayfs-wrap; do
    ln -sfn "$home/bin/$program" "$bin/$program"
  done
}

main "$@"
