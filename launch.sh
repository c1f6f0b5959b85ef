#!/usr/bin/env bash
# Cloze on this machine: installs what is missing into .venv, then does what the words say.
#   ./launch.sh                 the first run: text -> tokens -> a small BERT -> evaluation -> Hugging Face folder -> a filled mask
#   ./launch.sh test [fast|peers] [arguments of pytest]   the tests; `fast`: those that compile nothing, `peers`: also against transformers and torch
#   ./launch.sh lint [--fix]    ruff check, ruff format and pyright; --fix repairs and formats what ruff can. Fails where one reports anything
#   ./launch.sh pod ...         a TPU pod from this machine, without installing anything here: docs/pods.md
#   ./launch.sh VERB ...        any verb of `python -m pretrain`, for example: ./launch.sh train bert_tiny --workdir runs/mine
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

# The first Python of at least 3.11 that is found; CLOZE_PYTHON names another.
find_python() {
  for python in ${CLOZE_PYTHON:-python3 python python3.11 python3.12 python3.13}; do
    if "$python" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$python"
      return
    fi
  done
  echo "error: Cloze needs Python 3.11 or newer with venv; set CLOZE_PYTHON to one" >&2
  return 1
}

# The extra of setup.cfg for the accelerator of this machine, or nothing. JAX_PLATFORMS=cpu asks for none, CLOZE_ACCELERATOR names one
# (tpu, cuda13, cuda12, cpu). Tests set CLOZE_DEVICE_ROOT to a folder with stand-ins for /dev, /proc and /sys; nobody else does.
find_accelerator() { .venv/bin/python -S -m pretrain.distributed.accelerators --root "${CLOZE_DEVICE_ROOT:-/}"; }

# Before the plugin of one CUDA is installed: JAX loads every plugin that it finds, and two would both be its GPU backend.
remove_other_cuda() {
  local other
  for other in cuda12 cuda13; do
    if [ "$other" != "$1" ] && compgen -G ".venv/installed-*,$other-*" > /dev/null; then
      .venv/bin/python -m pip uninstall --quiet --yes "jax-$other-plugin" "jax-$other-pjrt"
      rm -f .venv/installed-*,"$other"-*
    fi
  done
}

# install EXTRA: into .venv, with the extra of this machine's accelerator, unless this setup.cfg with these extras is there already.
install() {
  local extra=$1 python accelerator mark
  if [ ! -x .venv/bin/python ]; then
    python=$(find_python)
    say "Making .venv with $("$python" --version)"
    "$python" -m venv .venv
  fi
  accelerator=$(find_accelerator)
  extra=$extra${accelerator:+,$accelerator}
  mark=".venv/installed-$extra-$(cksum < setup.cfg | cut -d' ' -f1)"
  if [ ! -e "$mark" ]; then
    say "Installing Cloze with the extra '$extra' into .venv (a few minutes the first time)"
    case $accelerator in cuda*) remove_other_cuda "$accelerator" ;; esac
    # A torch that is there already satisfies the range: bring the build you want before you ask for `peers`.
    PYTHONWARNINGS=ignore .venv/bin/python -m pip install --quiet --disable-pip-version-check -e ".[$extra]"
    touch "$mark"
  fi
}

# Compiled programs are kept between runs. glibc keeps its pages, too, instead of giving them back and taking them again at each
# step. What the caller has set stays.
settle() {
  export JAX_COMPILATION_CACHE_DIR=${JAX_COMPILATION_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/cloze/jax}
  export GLIBC_TUNABLES=${GLIBC_TUNABLES:-glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=100000000000:glibc.malloc.top_pad=268435456:glibc.malloc.arena_max=1}
}

cloze() { .venv/bin/python -m pretrain "$@"; }

first_run() {
  local began=$SECONDS
  say "1/5 Text to tokens: this Python's own documentation, real English that is on every machine"
  cloze prepare builtin --output runs/builtin --vocab-size 4096
  say "2/5 Pretraining BERT-tiny on masked words (configs/bert_tiny.py); Ctrl-C saves and leaves, the same command goes on"
  cloze train bert_tiny --workdir runs/bert_tiny
  say "3/5 Its score on text that it has not seen"
  cloze evaluate --workdir runs/bert_tiny
  say "4/5 A folder that transformers opens: AutoModelForMaskedLM.from_pretrained('runs/bert_tiny_hf')"
  cloze export --workdir runs/bert_tiny --output runs/bert_tiny_hf --overwrite
  say "5/5 A filled mask"
  cloze predict --workdir runs/bert_tiny "Return the [MASK] of the string." "If the file does not [MASK], an error is raised."
  say "Done in $((SECONDS - began)) s. Next: ./launch.sh report --workdir runs/bert_tiny, or ./launch.sh --help"
}

# Runs every check, so that one pass shows all reports. ruff and pyright are those of .venv; both run without the network.
lint() {
  local failed=0 check=() format=(--check)
  case "$*" in
    "") ;;
    --fix) check=(--fix) format=() ;;
    *)
      echo "error: unknown arguments of lint: $*; allowed is --fix" >&2
      return 2
      ;;
  esac
  install lint
  # pyright runs in the Node.js of its own extra, and does not look for a newer version of itself.
  export PYRIGHT_PYTHON_GLOBAL_NODE=0 PYRIGHT_PYTHON_IGNORE_WARNINGS=1
  .venv/bin/ruff check ${check[@]+"${check[@]}"} . || failed=1
  .venv/bin/ruff format ${format[@]+"${format[@]}"} . || failed=1
  # Named, because pyright prefers a pyrightconfig.json in any folder above to this pyproject.toml.
  .venv/bin/python -m pyright --project pyproject.toml || failed=1
  if [ "$failed" = 1 ]; then
    echo "error: lint failed; ./launch.sh lint --fix repairs what ruff can repair by itself" >&2
  fi
  return "$failed"
}

case "${1:-}" in
  "")
    install report
    settle
    first_run
    ;;
  test)
    shift
    extra=test tier=()
    case "${1:-}" in
      peers) shift && extra=test,peers ;;
      fast) shift && tier=(-m "not slow") ;;
    esac
    install "$extra"
    settle
    # The whole suite in two processes, each file of tests in one of them, those first that take longest (tests/conftest.py); it mostly
    # compiles, and XLA compiles on one core.
    [ $# -gt 0 ] || set -- --numprocesses 2 --dist loadfile --no-loadscope-reorder
    exec .venv/bin/python -m pytest ${tier[@]+"${tier[@]}"} "$@"
    ;;
  lint)
    shift
    lint "$@"
    ;;
  pod)
    python=$(find_python)
    exec "$python" -m pretrain "$@"
    ;;
  *)
    install report
    settle
    exec .venv/bin/python -m pretrain "$@"
    ;;
esac
