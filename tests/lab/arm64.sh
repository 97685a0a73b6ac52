#!/usr/bin/env bash
# Makes a tree of Debian 12 for arm64 and runs commands in it, for the tests that are marked arm64. Harmless when
# run again.
#
#   sudo tests/lab/arm64.sh [--dry-run]
#   tests/lab/arm64.sh run COMMAND …     the programs emulated by qemu-user, on this machine's kernel
#   tests/lab/arm64.sh boot COMMAND …    a whole machine emulated by qemu-system, with Debian's kernel for arm64
#
#   PREFIX=/opt/bareboat-lab/arm64   where the tree goes (tree/, with Python packages in /opt/venv), the kernel and
#                                    the disk of the emulated machine
#
# The commands run as an ordinary user who sees the checkout at /checkout; what they write vanishes. `run` needs
# Linux 6.7: it registers the emulator in a user namespace of its own, and the machine's binfmt_misc stays as it
# is. It emulates no namespaces, ptrace, seccomp nor Landlock; `boot` does, and takes a minute longer. The Python
# packages are those of locks/test.txt, with their hashes.
set -euo pipefail

prefix=${PREFIX:-/opt/bareboat-lab/arm64}
tree=$prefix/tree
checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
suite=bookworm
packages=(qemu-user-static qemu-system-arm mmdebstrap squashfs-tools cpio bubblewrap linux-libc-dev-arm64-cross)
inside=python3,python3-venv,gcc,busybox-static,libc6-dev,squashfs-tools,docker-registry,libseccomp2,procps,zstd
modules=(virtio_ring virtio virtio_mmio virtio_blk squashfs overlay)
# Magic number and machine of an ELF file's header: https://docs.kernel.org/admin-guide/binfmt-misc.html
# F: the emulator is opened now, so that the tree needs none.
binfmt=':aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
binfmt+=':\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
binfmt+=':/usr/bin/qemu-aarch64-static:F'
register="mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
printf '%s' '$binfmt' >/proc/sys/fs/binfmt_misc/register"

say() { printf 'arm64: %s\n' "$*" >&2; }
die() { say "$1"; [ $# -lt 2 ] || say "try: $2"; exit 1; }

main() {
  case ${1:-} in
    '') install ;;
    --dry-run)
      printf 'apt-get install %s\n%s for arm64 with %s -> %s\nlocks/test.txt -> %s\na kernel for arm64 -> %s\n' \
        "${packages[*]}" "$suite" "$inside" "$tree" "$tree/opt/venv" "$prefix/boot" ;;
    run | boot)
      [ -e "$prefix/disk.squashfs" ] || die "there is no tree in $prefix" "sudo $0"
      "$@" ;;
    *) die "unknown argument: $1" "$0 --dry-run" ;;
  esac
}

install() {
  [ "$(id -u)" -eq 0 ] || die 'only root can install packages' "sudo $0"
  umask 022
  local missing=() package
  for package in "${packages[@]}"; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get -o DPkg::Lock::Timeout=600 update -qq
    apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  fi
  once tree "$suite $inside" make_tree
  once boot "$suite ${modules[*]}" fetch_kernel
  once disk "$(cat "$checkout/locks/test.txt" "$prefix/.tree" "$0" | sha256sum)" make_disk
}

# once NAME WANTED FUNCTION: unless it was done for the same.
once() {
  [ "$(cat "$prefix/.$1" 2>/dev/null || true)" != "$2" ] || return 0
  say "making $1 in $prefix"
  mkdir -p "$prefix"
  "$3"
  echo "$2" >"$prefix/.$1"
}

make_tree() {
  rm -rf "$tree"
  # shellcheck disable=SC2016  # mmdebstrap gives the hook its $1
  emulating mmdebstrap --quiet --mode=root --skip=check/qemu --architectures=arm64 --variant=minbase \
    "--include=$inside" --customize-hook='chroot "$1" python3 -m venv /opt/venv' \
    --customize-hook='mkdir "$1/checkout" && touch "$1/etc/hosts"' "$suite" "$tree"
}

# emulating COMMAND …: as root, in namespaces that have the emulator and all of the machine's users.
emulating() {
  local pid
  unshare --user --mount --pid --fork --kill-child --propagation private bash -c "
    until [ \"\$(cat /proc/self/gid_map)\" ]; do sleep .01; done
    $register
    exec \"\$@\"" emulating "$@" &
  pid=$!
  until [ "$(readlink "/proc/$pid/ns/user")" != "$(readlink /proc/self/ns/user)" ]; do sleep .01; done
  echo '0 0 4294967295' >"/proc/$pid/uid_map"
  echo '0 0 4294967295' >"/proc/$pid/gid_map"
  wait "$pid"
}

# The kernel of Debian's clouds, and the modules that its disk needs.
fetch_kernel() {
  local work module
  work=$(mktemp -d)
  mkdir -p "$work"/{lists/partial,cache/archives/partial,files}
  local options=(
    -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::Etc::sourcelist="$tree/etc/apt/sources.list"
    -o Dir::Etc::sourceparts=/dev/null -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache"
    -o Dir::State::status="$tree/var/lib/dpkg/status" -o Acquire::Languages=none -o APT::Sandbox::User=root
  )
  apt-get "${options[@]}" update
  local kernel
  kernel=$(apt-cache "${options[@]}" depends linux-image-cloud-arm64 | sed -n 's/^ *Depends: //p')
  (cd "$work" && apt-get "${options[@]}" download "$kernel")
  for package in "$work"/*.deb; do dpkg-deb -x "$package" "$work/files"; done
  rm -rf "$prefix/boot"
  mkdir -p "$prefix/boot/modules"
  cp "$work"/files/boot/vmlinuz-* "$prefix/boot/vmlinuz"
  for module in "${modules[@]}"; do
    find "$work/files/lib/modules" -name "$module.ko" -exec cp {} "$prefix/boot/modules/" \;
  done
  rm -rf "$work"
}

# The Python packages, by the machine's own pip, which is ten times as fast as an emulated one; the checkout, as an
# editable installation has it; and of all that the disk.
make_disk() {
  local version packages platforms=() minor work
  version=$(basename "$(readlink -f "$tree/usr/bin/python3")")
  packages=$tree/opt/venv/lib/$version/site-packages
  for minor in $(seq 36 -1 17); do platforms+=(--platform "manylinux_2_${minor}_aarch64"); done
  work=$(mktemp -d)
  "$version" -m venv "$work/venv"
  "$work/venv/bin/pip" install -qq --disable-pip-version-check --require-hashes --only-binary=:all: \
    "${platforms[@]}" --platform manylinux2014_aarch64 --python-version "${version#python}" \
    --implementation cp --target "$work/packages" --requirement "$checkout/locks/test.txt"
  cp -a "$work/packages/." "$packages/"
  rm -rf "$work"
  echo /checkout/src >"$packages/checkout.pth"
  printf '#!/opt/venv/bin/python\nfrom bareboat.cli.main import entry\nentry()\n' >"$tree/opt/venv/bin/bareboat"
  chmod 755 "$tree/opt/venv/bin/bareboat"
  mksquashfs "$tree" "$prefix/disk.squashfs" -noappend -no-progress -quiet -comp zstd -Xcompression-level 3 \
    -e "$tree/usr/share/doc" "$tree/usr/share/man" "$tree/var/cache"
}

variables=(
  PATH=/opt/venv/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/tmp/home LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
  BAREBOAT_STORE=/tmp/store
)

run() {
  local each set=()
  for each in "${variables[@]}"; do set+=(--setenv "${each%%=*}" "${each#*=}"); done
  exec unshare --user --map-root-user --mount --propagation private bash -euc "
    $register
    exec bwrap \"\$@\"" run \
    --unshare-user --uid "$(id -u)" --gid "$(id -g)" --unshare-pid --die-with-parent \
    --ro-bind "$tree" / --dev /dev --proc /proc --ro-bind /sys /sys --tmpfs /tmp --tmpfs /dev/shm --dir /tmp/home \
    --ro-bind /etc/passwd /etc/passwd --ro-bind /etc/group /etc/group --ro-bind /etc/hosts /etc/hosts \
    --ro-bind "$checkout" /checkout --chdir /checkout --clearenv "${set[@]}" -- "$@"
}

# Its first process makes the root file system of the disk and a tmpfs; what the command prints goes to the console.
boot() {
  work=$(mktemp -d) # not local: the trap needs it
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$work"/{proc,sys,dev,lower,upper,root,checkout}
  cp -r "$tree/bin/busybox" "$prefix/boot/modules" "$work/"
  (cd "$checkout" && cp -r pyproject.toml src tests docs examples locks "$work/checkout/")
  printf 'cd /checkout\n/usr/bin/env -i %s \\\n  setpriv --reuid 1000 --regid 1000 --clear-groups -- %s\necho "exit status $?"\n' \
    "${variables[*]}" "${*@Q}" >"$work/command"
  echo 'echo o >/proc/sysrq-trigger; /bin/sleep 60' >>"$work/command"
  cat >"$work/init" <<INIT
#!/busybox sh
PATH=/ ; alias b=/busybox
b mount -t proc proc /proc; b mount -t sysfs sys /sys; b mount -t devtmpfs dev /dev
for module in ${modules[*]}; do b insmod /modules/\$module.ko; done
b mount -t squashfs -o ro /dev/vda /lower
b mount -t tmpfs -o size=1500m upper /upper; b mkdir /upper/files /upper/work
b mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work root /root
b cp -a /checkout /command /root/
for each in dev sys proc; do b mount --move /\$each /root/\$each; done
cd /root
b mkdir -p dev/shm dev/pts
b mount -t tmpfs shm dev/shm; b mount -t devpts pts dev/pts; b mount -t tmpfs -o mode=1777 tmp tmp
b ifconfig lo 127.0.0.1 up; b hostname emulated; echo 127.0.0.1 localhost emulated >etc/hosts
echo me:x:1000:1000::/tmp/home:/bin/bash >>etc/passwd; b mkdir tmp/home; b chown 1000:1000 tmp/home
echo begin
exec /busybox switch_root /root /bin/bash /command
INIT
  chmod 755 "$work/init"
  (cd "$work" && find . | cpio -o -H newc --quiet) >"$work.cpio"
  mv "$work.cpio" "$work/initrd"
  qemu-system-aarch64 -M virt -cpu cortex-a72 -smp 2 -m 4G -nic none -nographic -no-reboot \
    -kernel "$prefix/boot/vmlinuz" -initrd "$work/initrd" -append 'console=ttyAMA0 quiet panic=-1' \
    -drive "file=$prefix/disk.squashfs,format=raw,if=none,id=disk,readonly=on" \
    -device virtio-blk-device,drive=disk </dev/null | tr -d '\r' | tee "$work/console" | sed '0,/^begin$/d; /^exit status/,$d'
  return "$(sed -n 's/^exit status //p' "$work/console" | tail -n 1)"
}

main "$@"
