#!/usr/bin/env bash
# The script that runs on each worker of a pod. The launcher (pretrain/pod/gcloud.py) calls it over ssh from the home folder.
#   install ID        select cloze/trees/ID as the tree that runs, and install its requirements into cloze/venv
#   start ARGUMENTS   start `python -m pretrain ARGUMENTS`, detached from the connection; fails if a training runs already
#   now ARGUMENTS     run `python -m pretrain ARGUMENTS` and wait for it
#   status            print one line: cloze-worker HOST running|exited|stopped|lost|idle STATUS
#   stop [force]      send SIGTERM, on which the training saves and exits (force: SIGKILL)
#   logs N [follow|name]
# Older trees are kept. Every process of the training holds the lock cloze/run/lock, so that the script knows
# whether it runs without a process table, also after a restart of the machine.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$HOME/cloze/run"
cd "$HOME/cloze"
host=$(hostname)

# The lock is shared, so that two calls at once do not take each other for the training.
running() { ! flock --shared --nonblock run/lock true; }

refuse_if_running() {
  if running; then
    echo "$host: a training runs here already ($(cat run/words)): see it with pod logs, watch it with pod watch, end it with pod stop" >&2
    exit 3
  fi
}

# Makes cloze/venv with a Python of at least 3.11 that has venv; Ubuntu 22.04 has 3.10, so that uv installs one.
make_venv() {
  local python pythons=(python3 python3.11 python3.12 python3.13)
  [ -z "${CLOZE_PYTHON:-}" ] || pythons=("$CLOZE_PYTHON")
  for python in "${pythons[@]}"; do
    if "$python" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      "$python" -m venv venv
      return
    fi
  done
  export PATH=$HOME/.local/bin:$PATH
  command -v uv >/dev/null || python3 -m pip install --quiet --user uv
  uv venv --quiet --seed --python 3.11 venv
}

install() {
  local mark constraints=tree/constraints.txt
  refuse_if_running
  ln -sfn "trees/$1" tree
  if ! venv/bin/python -m pip --version > /dev/null 2>&1; then
    rm -rf venv # of an interrupted call
    make_venv
  fi
  [ -e "$constraints" ] || constraints= # a tree of an older version
  mark=venv/installed-$(cat tree/setup.cfg ${constraints:+"$constraints"} | cksum | cut -d' ' -f1)
  if [ ! -e "$mark" ]; then
    rm -f venv/installed-* # of an older tree, whose versions are replaced
    venv/bin/python -m pip install --quiet --disable-pip-version-check ${constraints:+--constraint "$constraints"} -e 'tree[tpu]'
    touch "$mark"
  fi
  echo "$host: ready, tree $1"
}

# JAX recommends huge pages for v5e and later: without them the TPU runtime starts and ends slowly. A failure to set them is ignored.
huge_pages() {
  local file=/sys/kernel/mm/transparent_hugepage/enabled
  if [ -e "$file" ] && ! grep -q '\[always\]' "$file"; then
    echo always | sudo -n tee "$file" >/dev/null 2>&1 || true
  fi
}

start() {
  refuse_if_running
  [ -x venv/bin/python ] || { echo "$host: nothing was pushed here: run pod push" >&2; exit 4; }
  huge_pages
  rm -f run/status run/stopped run/pid
  echo "$*" > run/words
  setsid bash "$here/worker.sh" hold "$@" < /dev/null >> run/log 2>&1 &
  for _ in $(seq 100); do # until it holds the lock, so that a status right after is not idle
    if [ -e run/pid ]; then
      echo "$host: started"
      return
    fi
    sleep 0.1
  done
  echo "$host: the training did not start: see pod logs" >&2
  exit 5
}

# Hold the lock, run the training, write its exit status.
hold() {
  local code=0 pid
  exec 9> run/lock
  flock --timeout 5 9 || { echo "another training has just been started here"; exit 3; }
  echo "== $(date -u +%FT%TZ) $host: python -m pretrain $*"
  cd tree
  "$HOME/cloze/venv/bin/python" -m pretrain "$@" &
  pid=$!
  cd ..
  echo "$$" > run/keeper
  echo "$pid" > run/pid
  trap '' TERM INT HUP # sent to all processes when the machine shuts down: let the training save first
  wait "$pid" || code=$?
  echo "$code" > run/status.part
  mv run/status.part run/status
  echo "== $(date -u +%FT%TZ) $host: ended with status $code"
}

status() {
  local state=idle code=0
  if running; then
    state=running
  elif [ -e run/status ]; then
    code=$(cat run/status)
    state=exited
    if [ -e run/stopped ] && [ "$code" != 0 ]; then state=stopped; fi
  elif [ -e run/pid ]; then
    state=lost # killed together with this script, or the machine was restarted
  fi
  echo "cloze-worker $host $state $code"
}

stop() {
  if ! running; then
    echo "$host: nothing runs"
    return
  fi
  touch run/stopped
  if [ "${1:-}" = force ]; then
    kill -KILL -- "-$(cat run/keeper)" # its whole process group: any process left would hold the chips
    echo 137 > run/status.part
    mv run/status.part run/status
  else
    kill -TERM "$(cat run/pid)"
  fi
  for _ in $(seq $((10 * ${CLOZE_STOP_SECONDS:-120}))); do
    if ! running; then
      echo "$host: stopped"
      return
    fi
    sleep 0.1
  done
  echo "$host: still running (saving?): see pod logs; pod stop --force kills it" >&2
  exit 6
}

logs() {
  case "${2:-}" in
    follow) exec tail -n "$1" -F run/log ;;
    name) tail -n "$1" run/log | sed "s/^/$host: /" ;;
    *) exec tail -n "$1" run/log ;;
  esac
}

now() {
  refuse_if_running
  cd tree
  exec "$HOME/cloze/venv/bin/python" -m pretrain "$@"
}

case "${1:-}" in
  install | start | hold | now | status | stop | logs) "$@" ;;
  *) echo "worker.sh: no verb '${1:-}'" >&2; exit 2 ;;
esac
