# shellcheck shell=bash
# What makes a set of namespaces a machine of its own; sourced by site.sh and node.sh.
# shellcheck disable=SC2154  # dir: the sourcing script's

network=10.77.0

as_user() { setpriv "--reuid=$LAB_UID" "--regid=$LAB_GID" --init-groups env "HOME=$LAB_HOME" "$@"; }

# Our number in the namespace that we were started from: /proc is still that one's.
outer_pid() { local pid; read -r pid _ </proc/self/stat; echo "$pid"; }

# The cluster's state lives in memory and goes with it: it belongs to subordinate users, so that you could not
# remove it from a disk.
lab_folders() {
  mount -n -t tmpfs -o mode=755 run /run
  mkdir -p /run/lab/{etc,log,up,machines} /run/munge
  mount -n --bind "$dir/log" /run/lab/log
  mount -n --bind "$dir/nodes" /run/lab/up
}

# Another system's tree becomes the root. In it the cluster's directory and this checkout keep their paths.
enter_tree() {
  local path
  mount -n --bind "$LAB_TREE" "$LAB_TREE"
  cd "$LAB_TREE" || exit
  for path in home tmp var/tmp run; do mount -n -t tmpfs -o mode=755 tree "$path"; done
  chmod 1777 tmp var/tmp
  for path in "$dir" "$(cd "$here/../../.." && pwd)"; do
    mkdir -p "./$path"
    mount -n --bind "$path" "./$path"
  done
  mount -n --rbind /dev dev
  # ssh refuses settings of another user, and the tree's root is none here.
  [ ! -d etc/ssh/ssh_config.d ] || mount -n -t tmpfs -o mode=755 settings etc/ssh/ssh_config.d
  mount -n --rbind /sys sys
  mount -n -t proc proc proc
  # The old root is mounted over the new one until it goes.
  pivot_root . .
  umount -n -l .
  cd /
}

names() { seq -f 'c%.0f' "$LAB_NODES"; }

run_of_machine() { # NAME
  local run=/run/lab/machines/$1 shared
  mkdir -p "$run"
  mount -n -t tmpfs -o mode=755 run "$run"
  mkdir -p "$run"/{lab,munge,sshd,lock}
  for shared in lab lab/log lab/up munge; do mount -n --bind "/run/$shared" "$run/$shared"; done
  mount -n --move "$run" /run
}

# Your account, with its home on the cluster; '*' so that sshd does not take it for locked.
etc_of_site() {
  local etc=/run/lab/etc name
  {
    getent passwd | awk -F: -v name="$LAB_USER" '$1 != name'
    printf '%s:*:%s:%s::%s:/bin/bash\n' "$LAB_USER" "$LAB_UID" "$LAB_GID" "$LAB_HOME"
  } >$etc/passwd
  {
    echo '127.0.0.1 localhost'
    echo "$network.100 login"
    for name in $(names); do echo "$network.${name#c} $name"; done
  } >$etc/hosts
  # No name server is in here: without this each reverse look-up waits for one.
  sed 's/^hosts:.*/hosts: files/' /etc/nsswitch.conf >$etc/nsswitch.conf
  for name in passwd hosts nsswitch.conf; do mount -n --bind "$etc/$name" "/etc/$name"; done
  # Rootless engines map further users inside: this account has ids for them.
  echo "$LAB_USER:2000:62000" >$etc/subid
  for name in subuid subgid; do mount -n --bind $etc/subid "/etc/$name"; done
}

# They hand those ids out, and need to be the root's in here: for the kernel the machine's own root is nobody.
set_user_id_programs() {
  local program
  for program in newuidmap newgidmap; do
    cp "/usr/bin/$program" "/run/lab/etc/$program"
    chmod 4755 "/run/lab/etc/$program"
    mount -n --bind "/run/lab/etc/$program" "/usr/bin/$program"
  done
}

own_network() { # NAME
  local address=$network.${1#c}
  [ "$1" != login ] || address=$network.100
  until ip link show eth0 >/dev/null 2>&1; do sleep .01; done
  ip link set lo up
  # The same after a restart: the others would look for the old one for some seconds.
  ip link set eth0 address "$(printf '02:00:00:00:00:%02x' "${address##*.}")"
  ip addr add "$address/24" dev eth0
  ip link set eth0 up
}

# A /dev of its own; the GPUs are there by name only, which is what a scheduler hands out.
own_devices() { # NAME
  local dev=/run/lab/dev.$1 name
  mkdir -p "$dev"
  mount -n -t tmpfs -o mode=755 dev "$dev"
  local devices=(null zero full random urandom tty fuse)
  for name in "${devices[@]}"; do
    [ -c "/dev/$name" ] || continue
    : >"$dev/$name"
    mount -n --bind "/dev/$name" "$dev/$name"
  done
  if [ "$1" != login ]; then
    for name in $(seq 0 $((LAB_GPUS - 1))) ctl; do
      : >"$dev/nvidia$name"
      mount -n --bind /dev/null "$dev/nvidia$name"
    done
  fi
  ln -s /proc/self/fd "$dev/fd"
  ln -s fd/0 "$dev/stdin"
  ln -s fd/1 "$dev/stdout"
  ln -s fd/2 "$dev/stderr"
  mkdir "$dev/shm" "$dev/pts"
  mount -n -t tmpfs -o mode=1777 shm "$dev/shm"
  mount -n -t devpts -o newinstance,ptmxmode=666,mode=620 pts "$dev/pts"
  ln -s pts/ptmx "$dev/ptmx"
  mount -n --move "$dev" /dev
}

# A compute node shares the home folder with the others and nothing else: neither /tmp nor the homes of the
# machine outside, where the checkout and its environment may lie.
own_folders() {
  local folder
  mkdir -p /run/home
  mount -n --bind "$LAB_HOME" /run/home
  for folder in "$dir" /tmp /var/tmp /home; do
    [ -d "$folder" ] || continue
    mount -n -t tmpfs -o mode=1777 "$folder" "$folder"
  done
  chmod 755 /home
  mkdir -p "$LAB_HOME"
  mount -n --bind /run/home "$LAB_HOME"
  umount /run/home
  cd /
}

sshd_start() {
  touch "/run/lab/log/sshd.$(hostname).log"
  /usr/sbin/sshd -f /dev/null -h /run/lab/ssh_host_key -o UsePAM=no -o StrictModes=no -o PidFile=none \
    -o PrintMotd=no -o PrintLastLog=no -o AuthorizedKeysFile=.ssh/authorized_keys -E "/run/lab/log/sshd.$(hostname).log"
}

# Another site's commands are not on this one: whiteouts in a folder that lies over /usr/bin.
hide_commands() { # PACKAGE…
  local hidden=/run/lab/hidden path
  mkdir -p "$hidden"
  dpkg -L "$@" | grep -E '^/usr/bin/.' | while read -r path; do mknod "$hidden/${path##*/}" c 0 0; done
  mount -n -t overlay -o "ro,lowerdir=$hidden:/usr/bin" overlay /usr/bin
}
