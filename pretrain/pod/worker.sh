#!/usr/bin/env bash
# The script that runs on each worker of a pod. The launcher (pretrain/pod/gcloud.py) calls it over ssh from the home folder.
#   install ID        install the requirements of cloze/trees/ID into cloze/venv, then select it as the tree that runs
#   start ARGUMENTS   start `python -m pretrain ARGUMENTS`, detached from the connection; fails if a training runs already, and if
#                     CLOZE_TREE names another tree than the last one that was installed. CLOZE_START is the start's name
#   now ARGUMENTS     run `python -m pretrain ARGUMENTS` and wait for it
#   status            print one line: cloze-worker HOST running|exited|stopped|lost|idle STATUS
#   stop [force [START]]   send SIGTERM, on which the training saves and exits (force: SIGKILL; with START only to what this start began)
#   logs N [follow|name]
# Older trees are kept. Every process of the training holds the lock cloze/run/lock, so that the script knows
# whether it runs without a process table, also after a restart of the machine.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$HOME/cloze/run"
cd "$HOME/cloze"
host=$(hostname)

# The values of --env come in a file of the home folder, which CLOZE_ENV names, so that no list of processes has them. It is removed.
take_variables() {
  local file=${CLOZE_ENV:-}
  unset CLOZE_ENV
  [ -n "$file" ] || return 0
  if [ ! -f "$HOME/$file" ]; then
    echo "$host: the variables of --env did not arrive: give the command again" >&2
    exit 4
  fi
  # shellcheck source=/dev/null
  . "$HOME/$file"
  rm -f "$HOME"/.cloze-env-*
}

# The lock is shared, so that two calls at once do not take each other for the training.
running() { ! flock --shared --nonblock run/lock true; }

refuse_if_running() {
  if running; then
    echo "$host: a training runs here already ($(cat run/words)): see it with pod logs, watch it with pod watch, end it with pod stop" >&2
    exit 3
  fi
}

# Makes cloze/venv with a Python from 3.11 to 3.13, for which TensorFlow, that reads buckets, has wheels, and that has venv; Ubuntu 22.04 has 3.10, so that uv installs one.
make_venv() {
  local python pythons=(python3 python3.11 python3.12 python3.13)
  [ -z "${CLOZE_PYTHON:-}" ] || pythons=("$CLOZE_PYTHON")
  for python in "${pythons[@]}"; do
    if "$python" -c 'import sys, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then
      "$python" -m venv venv
      return
    fi
  done
  export PATH=$HOME/.local/bin:$PATH
  command -v uv >/dev/null || python3 -m pip install --quiet --user uv
  uv venv --quiet --seed --python 3.11 venv
}

# find_mark TREE: print the path of the mark that cloze/venv has what a tree requires.
find_mark() {
  local constraints=$1/constraints.txt
  [ -e "$constraints" ] || constraints= # a tree of an older version
  echo "venv/installed-$(cat "$1/setup.cfg" ${constraints:+"$constraints"} | cksum | cut -d' ' -f1)"
}

install() {
  local mark tree=trees/$1 constraints=trees/$1/constraints.txt
  refuse_if_running
  if ! venv/bin/python -m pip --version > /dev/null 2>&1; then
    rm -rf venv # of an interrupted call
    make_venv
  fi
  [ -e "$constraints" ] || constraints=
  mark=$(find_mark "$tree")
  if [ ! -e "$mark" ]; then
    rm -f venv/installed-* # of an older tree, whose versions are replaced
    venv/bin/python -m pip install --quiet --disable-pip-version-check ${constraints:+--constraint "$constraints"} -e "$tree[tpu,tfdata]"
    touch "$mark"
  fi
  ln -sfn "$tree" tree # last, so that a push that fails leaves the tree of the one before
  echo "$host: ready, tree $1"
}

# JAX recommends huge pages for v5e and later: without them the TPU runtime starts and ends slowly. A failure to set them is ignored.
huge_pages() {
  local file=/sys/kernel/mm/transparent_hugepage/enabled
  if [ -e "$file" ] && ! grep -q '\[always\]' "$file"; then
    echo always | sudo -n tee "$file" >/dev/null 2>&1 || true
  fi
}

# refuse_other_tree TREE: fails if another tree was pushed here last, or the push of it has not ended.
refuse_other_tree() {
  local found
  found=$(basename "$(readlink tree)")
  if [ "$found" != "${1:-$found}" ]; then
    echo "$host: this worker has the tree $found, not $1, the last that was pushed to all workers from your machine: run pod push" >&2
    exit 4
  elif [ ! -e "$(find_mark tree)" ]; then
    echo "$host: the last push has not installed all that tree $found requires: run pod push" >&2
    exit 4
  fi
}

start() {
  local tree=${CLOZE_TREE:-} name=${CLOZE_START:-}
  refuse_if_running
  [ -x venv/bin/python ] || { echo "$host: nothing was pushed here: run pod push" >&2; exit 4; }
  refuse_other_tree "$tree"
  huge_pages
  rm -f run/status run/stopped run/pid
  echo "$*" > run/words
  setsid bash "$here/worker.sh" hold "$@" < /dev/null >> run/log 2>&1 &
  for _ in $(seq 100); do # until it holds the lock, so that a status right after is not idle
    if [ -e run/pid ] && [ "$(cat run/start)" = "$name" ]; then
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
  echo "${CLOZE_START:-}" > run/start
  unset CLOZE_START CLOZE_TREE
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
  elif [ -n "${2:-}" ] && [ "$(cat run/start)" != "$2" ]; then
    echo "$host: another start's training runs here, and goes on"
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
  if [ ! -e run/log ]; then
    echo "$host: nothing has run here yet: pod run starts a training" >&2
    [ "${2:-}" = follow ] || return 0
  fi
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

take_variables
case "${1:-}" in
  install | start | hold | now | status | stop | logs) "$@" ;;
  *) echo "worker.sh: no verb '${1:-}'" >&2; exit 2 ;;
esac
