# shellcheck shell=bash
# A Slurm site, with real accounting on this machine's system; sourced by site.sh and node.sh.
# shellcheck disable=SC2154  # dir, names: the sourcing script's

prefix=${PREFIX:-/opt/bareboat-lab}

site_prepare() {
  mkdir -p /run/lab/etc/slurm /run/lab/spool /run/lab/state
  chmod 755 /run/lab/spool
  # The daemons would make their logs unreadable for you.
  touch /run/lab/log/{munged,slurmdbd,slurmctld}.log
  configuration
  mount -n --bind /run/lab/etc/slurm /etc/slurm
  [ -n "$LAB_TREE" ] || hide_commands gridengine-client gridengine-common
}

configuration() {
  local etc=/run/lab/etc/slurm gpus=
  if [ "$LAB_GPUS" -gt 0 ]; then
    gpus=" Gres=gpu:v100:$LAB_GPUS"
    echo "NodeName=c[1-$LAB_NODES] Name=gpu Type=v100 File=/dev/nvidia[0-$((LAB_GPUS - 1))]" >$etc/gres.conf
  fi
  # cred_expire: a requeued job otherwise waits two minutes for its old credential to expire.
  # linuxproc, no cgroup: a user namespace has no cgroups of its own to give away.
  # task/affinity binds to real processors, of which every machine for these tests has two. FORCE:2: two jobs
  # share a core, so that a node takes as many ranks as one with four.
  cat >$etc/slurm.conf <<CONF
ClusterName=lab
SlurmctldHost=login($network.100)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=cred_expire=5
StateSaveLocation=/run/lab/state
SlurmdSpoolDir=/run/lab/spool/%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/run/lab/log/slurmctld.log
SlurmdLogFile=/run/lab/log/slurmd.%n.log
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
MpiDefault=none
PropagateResourceLimits=NONE
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=login
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=associations,limits,qos
PriorityType=priority/multifactor
PriorityWeightQOS=1000
PreemptType=preempt/qos
PreemptMode=REQUEUE
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,batch_sched_delay=0,bf_interval=5
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=1500
EnforcePartLimits=ALL
GresTypes=gpu
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=10
KillWait=3
MinJobAge=600
JobRequeue=1
NodeName=c[1-$LAB_NODES] CPUs=2 Sockets=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=16000$gpus State=UNKNOWN
PartitionName=main Nodes=c[1-$LAB_NODES] Default=YES OverSubscribe=FORCE:2 MaxTime=1-00:00:00 DefaultTime=01:00:00 State=UP
PartitionName=small Nodes=c1 MaxNodes=1 MaxTime=00:10:00 DefaultTime=00:05:00 State=UP
PartitionName=closed Nodes=c[1-$LAB_NODES] MaxTime=01:00:00 State=DOWN
PartitionName=retired Nodes=c[1-$LAB_NODES] MaxTime=01:00:00 State=INACTIVE
CONF
  [ -z "$LAB_TREE" ] || sed -i '/^Accounting/d; /^Preempt/d' $etc/slurm.conf
  # 22.05 does not know this plugin, and later versions use no other one without cgroups.
  [ -z "$LAB_TREE" ] || echo CgroupPlugin=disabled >$etc/cgroup.conf
  (umask 077; cat >$etc/slurmdbd.conf) <<CONF
AuthType=auth/munge
DbdHost=login
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
PidFile=/run/slurmdbd.pid
LogFile=/run/lab/log/slurmdbd.log
CONF
}

site_login() {
  (umask 077; head -c 1024 /dev/urandom >/run/lab/munge.key)
  munged --force --key-file=/run/lab/munge.key --pid-file=/run/munge/pid --seed-file=/run/munge/seed \
    --log-file="/run/lab/log/munged.log"
  : >/run/lab/munge.up
  [ -n "$LAB_TREE" ] || accounting
  slurmctld
}

accounting() {
  local data=/run/lab/mysql
  mkdir -p "$data" /run/mysqld
  tar -C "$data" -xf "$prefix/mariadb.tar"
  # Only the socket; and nothing of it needs to survive a crash of the machine. Servers of other clusters have the same
  # process ID, and so the same names of temporary tables, in a directory of all.
  setsid mariadbd --no-defaults --user=root --datadir="$data" --tmpdir="$data" \
    --socket=/run/mysqld/mysqld.sock --skip-networking --skip-log-bin --innodb-buffer-pool-size=32M \
    --innodb-log-file-size=8M --innodb-flush-log-at-trx-commit=0 --innodb-lock-wait-timeout=900 \
    >"/run/lab/log/mariadb.log" 2>&1 &
  until mariadb-admin --no-defaults -S /run/mysqld/mysqld.sock ping >/dev/null 2>&1; do sleep .05; done
  slurmdbd
  until sacctmgr -n -i show cluster >/dev/null 2>&1; do sleep .05; done
  # research: the user's own. expired: theirs too, but its time is used up. other: not theirs.
  sacctmgr -i -Q <<COMMANDS
add cluster lab
add account research,expired,other cluster=lab
add qos short set MaxWall=00:10:00 Priority=10
add qos scavenge set GraceTime=5
modify qos normal set Preempt=scavenge
add user $LAB_USER account=research,expired defaultaccount=research
modify user $LAB_USER where account=research set qos=normal,short,scavenge defaultqos=normal
modify user $LAB_USER where account=expired set MaxSubmitJobs=0
COMMANDS
}

site_node() { # NODE
  mkdir -p "/run/lab/spool/$1"
  until [ -e /run/lab/munge.up ]; do sleep .02; done
  touch "/run/lab/log/slurmd.$1.log"
  slurmd -N "$1"
}

# Usable when each node says so, not when its daemon was started.
site_wait() {
  local slept=0
  until [ "$(sinfo -h -p main -t idle -o %D 2>/dev/null)" = "$LAB_NODES" ]; do
    [ $((slept++)) -lt 1000 ] || { echo 'the nodes do not register' >&2; exit 1; }
    sleep .05
  done
}
