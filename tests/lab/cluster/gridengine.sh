# shellcheck shell=bash
# A Grid Engine site; sourced by site.sh and node.sh.
# shellcheck disable=SC2154  # names, network: the sourcing script's

export SGE_ROOT=/var/lib/gridengine SGE_CELL=default

as_admin() { setpriv --reuid=sgeadmin --regid=sgeadmin --init-groups "$@"; }

site_prepare() {
  local root=/run/lab/gridengine spool=/run/lab/spool
  mkdir -p "$root" "$spool"/{qmaster/job_scripts,spooldb,execd}
  # Debian's installation, but for the cell that its package made for the machine itself.
  cp -rP "$SGE_ROOT/." "$root"
  rm -rf "${root:?}/$SGE_CELL"
  mkdir -p "$root/$SGE_CELL/common"
  sed "s|^binary_path.*|binary_path /usr/lib/gridengine|" /usr/share/gridengine/default-bootstrap \
    >"$root/$SGE_CELL/common/bootstrap"
  echo login >"$root/$SGE_CELL/common/act_qmaster"
  chown -R sgeadmin:sgeadmin "$root/$SGE_CELL" "$spool"
  mount -n --bind "$root" "$SGE_ROOT"
  mount -n --bind "$spool" /var/spool/gridengine
  hide_commands slurm-client
}

site_login() {
  as_admin /usr/share/gridengine/scripts/init_cluster "$SGE_ROOT" "$SGE_CELL" /var/spool/gridengine/spooldb sgeadmin
  sge_qmaster
  until as_admin qconf -sh >/dev/null 2>&1; do sleep .05; done
  configuration
  : >/run/lab/qmaster.up
}

# Adds what a file in qconf's own format says.
add() { local file; file=$(mktemp -p /run/lab); cat >"$file"; chmod 644 "$file"; as_admin qconf "$1" "$file"; rm "$file"; }

configuration() {
  local name rule
  as_admin qconf -ah "$(names | paste -sd,)"
  as_admin qconf -as login
  # Quick to start a job, to see its end, and to find a dead node, whose jobs start elsewhere.
  as_admin qconf -sconf | sed -e 's/^load_report_time.*/load_report_time 00:00:03/' \
    -e 's/^max_unheard.*/max_unheard 00:00:15/' -e 's/^reschedule_unknown.*/reschedule_unknown 00:00:05/' \
    -e 's/^reporting_params.*/reporting_params accounting=true reporting=false accounting_flush_time=00:00:00/' \
    -e '/^#/d' >/run/lab/global
  as_admin qconf -Mconf /run/lab/global
  as_admin qconf -ssconf | sed -e 's/^schedule_interval.*/schedule_interval 0:0:2/' \
    -e 's/^flush_submit_sec.*/flush_submit_sec 1/' -e 's/^flush_finish_sec.*/flush_finish_sec 1/' >/run/lab/scheduler
  as_admin qconf -Msconf /run/lab/scheduler
  {
    as_admin qconf -sc
    echo 'gpu        gpu  INT  <=   YES YES 0     0'
    echo 'exclusive  excl BOOL EXCL YES YES FALSE 1000'
  } | grep -v '^#' | add -Mc
  for name in $(names); do
    as_admin qconf -as "$name"
    add -Ae <<HOST
hostname $name
load_scaling NONE
complex_values slots=4,gpu=$LAB_GPUS,exclusive=true
user_lists NONE
xuser_lists NONE
projects NONE
xprojects NONE
usage_scaling NONE
report_variables NONE
HOST
  done
  printf 'group_name @allhosts\nhostlist %s\n' "$(names | tr '\n' ' ')" | add -Ahgrp
  # Slots of one node; spread over nodes; nodes filled up; and so many on each node.
  while read -r name rule; do
    add -Ap <<PE
pe_name $name
slots 999
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule $rule
control_slaves TRUE
job_is_first_task TRUE
urgency_slots min
accounting_summary FALSE
qsort_args NONE
PE
  done <<'RULES'
smp $pe_slots
mpi $round_robin
fill $fill_up
each1 1
each2 2
each4 4
RULES
  add -Aprj <<'PROJECT'
name research
oticket 0
fshare 0
acl NONE
xacl NONE
PROJECT
  for name in main closed; do
    as_admin qconf -sq | sed -e "s/^qname.*/qname $name/" -e 's/^hostlist.*/hostlist @allhosts/' -e 's/^slots.*/slots 4/' \
      -e 's/^pe_list.*/pe_list smp mpi fill each1 each2 each4/' -e 's/^rerun.*/rerun TRUE/' \
      -e 's/^shell .*/shell \/bin\/bash/' -e 's/^load_thresholds.*/load_thresholds NONE/' | add -Aq
  done
  as_admin qmod -d closed
}

site_node() { # NODE
  until [ -e /run/lab/qmaster.up ]; do sleep .05; done
  sge_execd
}

site_wait() {
  local slept=0
  until [ "$(qstat -f -q main -qs u 2>/dev/null | grep -c '^main@')" = 0 ] &&
    [ "$(qstat -f -q main 2>/dev/null | grep -c '^main@')" = "$LAB_NODES" ]; do
    [ $((slept++)) -lt 600 ] || { echo 'the nodes do not register' >&2; exit 1; }
    sleep .05
  done
}
