#!/usr/bin/env bash
# Run Cloze on this machine: install missing packages into .venv, then run a command.
#   ./launch.sh                 the first run: prepare text, train a small BERT, evaluate, export to Hugging Face, fill a mask
#   ./launch.sh test            the tests: every promise, by a few cases
#   ./launch.sh test all        every case, parity with transformers on torch, the pages and the notebook
#   ./launch.sh test fast       only the tests that compile nothing
#   ./launch.sh test gpu        the tests of tests/gpu, on an NVIDIA GPU
#   ./launch.sh test ARGUMENTS  any arguments of pytest, for example tests/models/test_bert.py: every case of what you name
#   ./launch.sh lint [--fix]    ruff check, ruff format and pyright; --fix applies ruff's fixes. Fails if any of them reports a problem
#   ./launch.sh pod ...         control a TPU pod from this machine; installs nothing here (docs/pods.md)
#   ./launch.sh VERB ...        any verb of `python -m pretrain`, for example: ./launch.sh train bert_tiny --workdir runs/mine
# It installs the versions of constraints.txt. CLOZE_CONSTRAINTS names another file of versions; empty, it admits the newest.
set -euo pipefail
unset CDPATH PYTHONSAFEPATH # cd would go elsewhere, and Python would not find the packages in the checkout
caller=$PWD script=${BASH_SOURCE[0]}
while [ -L "$script" ]; do # readlink -f is not on every macOS
  target=$(readlink "$script")
  case $target in /*) script=$target ;; *) script=$(dirname "$script")/$target ;; esac
done
case $script in "${BASH_SOURCE[0]}") cd "$(dirname "$script")" ;; *) cd -P "$(dirname "$script")" ;; esac

# Headings and notes that cannot be written, such as with `2>&-`, end nothing.
print_heading() { printf '\n\033[1m%s\033[0m\n' "$*" || true; }

# find_python [BELOW]: print the first Python of at least 3.11 and below 3.BELOW; CLOZE_PYTHON, a name or a path, selects another one.
# 3.14 comes last, because TensorFlow has no wheels for it; `pod` needs no packages.
find_python() {
  local python below pythons=(python3 python python3.11 python3.12 python3.13 python3.14)
  [ -z "${CLOZE_PYTHON:-}" ] || pythons=("$CLOZE_PYTHON")
  for below in ${1:-14 15}; do
    for python in "${pythons[@]}"; do
      if "$python" -c "import sys; sys.exit(not (3, 11) <= sys.version_info < (3, $below))" 2>/dev/null; then
        echo "$python"
        return
      fi
    done
  done
  if [ -n "${CLOZE_PYTHON:-}" ]; then
    echo "error: CLOZE_PYTHON=$CLOZE_PYTHON is $("$CLOZE_PYTHON" --version 2>/dev/null || echo no Python): Cloze needs Python 3.11 to 3.14" >&2
  else
    echo "error: Cloze needs Python 3.11 to 3.14, and PATH has none; set CLOZE_PYTHON to one" >&2
  fi
  return 1
}

# print_version PYTHON: print the version of a Python, such as 3.11, or nothing.
print_version() { "$1" -S -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2> /dev/null || true; }

# Refuse a .venv in whose Python the packages cannot be installed, or would not be found.
check_environment() {
  local version problem='' wanted
  version=$(print_version .venv/bin/python)
  case $version in
    3.11 | 3.12 | 3.13 | 3.14 | '') ;;
    *) problem="has Python $version, and Cloze needs 3.11 to 3.14" ;;
  esac
  if [ -n "$version" ] && compgen -G ".venv/lib/python*/site-packages" > /dev/null && [ ! -d ".venv/lib/python$version/site-packages" ]; then
    problem="has the packages of another Python than its own, which is $version now"
  elif [ -n "${CLOZE_PYTHON:-}" ] && ! compgen -G ".venv/installed-*" > /dev/null; then # a first call failed, or made none
    wanted=$(print_version "$CLOZE_PYTHON")
    [ -z "$wanted" ] || [ "$wanted" = "$version" ] || problem="has Python $version, and CLOZE_PYTHON=$CLOZE_PYTHON is $wanted"
  fi
  if [ -n "$problem" ]; then
    echo "error: $PWD/.venv $problem: remove this folder, and call again" >&2
    return 2
  fi
}

# make_environment PYTHON: create .venv. Distributions and images leave out parts of Python: without `venv` or `ensurepip`, `uv` makes
# it where there is one, else the package virtualenv, from a folder of its own. A part of an environment is never left behind.
make_environment() {
  local python=$1 tools
  print_heading "Creating .venv with $("$python" --version)"
  if "$python" -c 'import ensurepip, venv' 2> /dev/null && "$python" -m venv .venv; then
    return
  fi
  rm -rf .venv
  if command -v uv > /dev/null && uv venv --quiet --seed --python "$python" .venv; then
    return
  fi
  rm -rf .venv
  tools=$(mktemp -d)
  if "$python" -m pip install --quiet --disable-pip-version-check --target "$tools" 'virtualenv>=20.26,<22' &&
    PYTHONPATH=$tools "$python" -m virtualenv --quiet .venv; then
    rm -rf "$tools"
    return
  fi
  rm -rf .venv "$tools"
  echo "error: $python cannot make an environment: install its venv (Debian: apt install python3-venv) or uv" >&2
  return 1
}

# Print the extra of setup.cfg for this machine's accelerator, or nothing. JAX_PLATFORMS=cpu selects none, CLOZE_ACCELERATOR selects
# one (tpu, cuda13, cuda12, cpu). Only tests set CLOZE_DEVICE_ROOT, to a folder with stand-ins for /dev, /proc and /sys.
find_accelerator() { .venv/bin/python -S -m pretrain.processes.accelerator_detection --root "${CLOZE_DEVICE_ROOT:-/}"; }

# Uninstall the plugin of the other CUDA version: JAX loads every plugin it finds, and two would both register as the GPU backend.
remove_other_cuda() {
  local other
  for other in cuda12 cuda13; do
    if [ "$other" != "$1" ] && compgen -G ".venv/lib/python*/site-packages/jax_${other}_plugin-*.dist-info" > /dev/null; then
      .venv/bin/python -m pip uninstall --quiet --yes "jax-$other-plugin" "jax-$other-pjrt"
      rm -f .venv/installed-*,"$other"-*
    fi
  done
}

# install EXTRA: install Cloze into .venv with this extra, with `tfdata`, which is empty on Python 3.14, and with that of the machine's
# accelerator, unless that has been done before. A mark in .venv, with a checksum of Python's version, the requirements and their versions,
# says so.
install() {
  local extra=$1 python version accelerator checksum mark upgrade=() constraints=${CLOZE_CONSTRAINTS-constraints.txt}
  if [ -n "$constraints" ] && [ ! -f "$constraints" ]; then
    if [ -n "${CLOZE_CONSTRAINTS:-}" ]; then
      echo "error: CLOZE_CONSTRAINTS=$constraints: no such file in $PWD; empty, it admits the newest versions" >&2
    else
      echo "error: $PWD has no $constraints: call launch.sh of a whole checkout" >&2
    fi
    return 2
  fi
  if [ ! -x .venv/bin/python ]; then
    if [ ! -w . ]; then
      echo "error: $PWD cannot be written to, and .venv is made there: call launch.sh of a copy that is yours" >&2
      return 1
    fi
    python=$(find_python)
    make_environment "$python"
  elif ! check_environment; then
    return 2
  elif ! compgen -G ".venv/installed-*" > /dev/null && ! .venv/bin/python -m pip --version > /dev/null 2>&1; then
    # An interrupted first call leaves an environment without pip.
    if ! .venv/bin/python -m ensurepip > /dev/null 2>&1; then
      echo "error: $PWD/.venv has no pip: remove this folder, and call again" >&2
      return 2
    fi
  elif [ -z "$constraints" ]; then # without these flags, pip leaves what setup.cfg admits as it is
    upgrade=(--upgrade --upgrade-strategy eager)
  fi
  version=$(print_version .venv/bin/python)
  accelerator=$(find_accelerator)
  extra=$extra,tfdata${accelerator:+,$accelerator}
  checksum=$({ echo "$version" && cat setup.cfg ${constraints:+"$constraints"}; } | cksum | cut -d' ' -f1)
  mark=.venv/installed-$extra-$checksum
  if [ ! -e "$mark" ]; then
    # The newest versions came with an earlier extra.
    if compgen -G ".venv/installed-*-$checksum" > /dev/null; then upgrade=(); fi
    # What other marks name is not in .venv any more, once other versions are.
    find .venv/ -maxdepth 1 -name 'installed-*' ! -name "installed-*-$checksum" -delete
    print_heading "Installing Cloze with the extra '$extra' into .venv (a few minutes the first time)"
    case $accelerator in cuda*) remove_other_cuda "$accelerator" ;; esac
    # Cloze itself, under the name that it had before: uninstalled later, it would take the command `cloze` with it.
    if compgen -G ".venv/lib/python*/site-packages/cloze-*.dist-info/direct_url.json" > /dev/null; then
      .venv/bin/python -m pip uninstall --quiet --yes cloze
    fi
    # An installed torch satisfies the version range: to use a certain build, install it before `test all`.
    PYTHONWARNINGS=ignore .venv/bin/python -m pip install --quiet --disable-pip-version-check \
      ${constraints:+--constraint "$constraints"} ${upgrade[@]+"${upgrade[@]}"} -e ".[$extra]"
    touch "$mark"
  fi
}

# Keep compiled programs between runs, and make glibc keep freed pages instead of returning them to the system at each step.
# Variables that the caller has set are kept. Without HOME the programs are kept in the checkout, because JAX trusts what it reads, and
# another user may own a folder of /tmp.
configure_environment() {
  export JAX_COMPILATION_CACHE_DIR=${JAX_COMPILATION_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-$PWD}/.cache}/cloze/jax}
  export GLIBC_TUNABLES=${GLIBC_TUNABLES:-glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=100000000000:glibc.malloc.top_pad=268435456:glibc.malloc.arena_max=1}
}

cloze() { .venv/bin/python -m pretrain "$@"; }

first_run() {
  local began=$SECONDS
  print_heading "1/5 Text to tokens: this Python's own documentation, which every machine has"
  cloze prepare builtin --output runs/builtin --vocab-size 4096
  print_heading "2/5 Pretraining BERT-tiny by masked LM (configs/bert_tiny.py); Ctrl-C saves and exits, the same command resumes"
  cloze train bert_tiny --workdir runs/bert_tiny
  print_heading "3/5 Evaluation on held-out text"
  cloze evaluate --workdir runs/bert_tiny
  print_heading "4/5 Export to transformers: AutoModelForMaskedLM.from_pretrained('runs/bert_tiny_hf')"
  cloze export --workdir runs/bert_tiny --output runs/bert_tiny_hf --overwrite
  print_heading "5/5 Filling a mask"
  cloze predict --workdir runs/bert_tiny "Return the [MASK] of the string." "If the file does not [MASK], an error is raised."
  print_heading "Done in $((SECONDS - began)) s. Next: ./launch.sh report --workdir runs/bert_tiny, or ./launch.sh --help"
}

# Run all checks, so that one pass shows all reports. ruff and pyright are installed in .venv and need no network.
lint() {
  local failed=0 check=() format=(--check)
  case "$*" in
    "") ;;
    --fix) check=(--fix) format=() ;;
    *)
      echo "error: unknown arguments of lint: $*; allowed: --fix" >&2
      return 2
      ;;
  esac
  install lint
  # pyright uses the Node.js of its own extra and does not check for updates.
  export PYRIGHT_PYTHON_GLOBAL_NODE=0 PYRIGHT_PYTHON_IGNORE_WARNINGS=1
  .venv/bin/ruff check ${check[@]+"${check[@]}"} . || failed=1
  .venv/bin/ruff format ${format[@]+"${format[@]}"} . || failed=1
  # --project, because pyright prefers a pyrightconfig.json in any parent folder to this pyproject.toml.
  .venv/bin/python -m pyright --project pyproject.toml || failed=1
  if [ "$failed" = 1 ]; then
    echo "error: lint failed; ./launch.sh lint --fix applies the fixes of ruff" >&2
  fi
  return "$failed"
}

# report_moved_paths VERB ARGUMENT...: name on stderr the first argument that is a path in the caller's folder, where it is not looked up.
report_moved_paths() {
  local argument path
  if [ "$caller" -ef . ]; then return; fi
  shift
  for argument in "$@"; do
    path=${argument#*=}
    case $path in /* | -* | '') continue ;; esac
    if [ -e "$caller/$path" ]; then
      echo "note: launch.sh works in $PWD: $path is looked up there, not in $caller, which has it too; give an absolute path" >&2 || true
      return
    fi
  done
}

# needs_no_packages PYTHON VERB: succeed for a question about verbs, and for a verb that there is not.
needs_no_packages() {
  local status=0
  case $2 in -h | --help) return ;; esac
  "$1" -c 'import sys; from pretrain.cli.verbs import VERBS; sys.exit(0 if sys.argv[1] in VERBS else 9)' "$2" 2> /dev/null || status=$?
  [ "$status" = 9 ]
}

if [ $# = 0 ]; then
  install report
  configure_environment
  first_run
  exit
fi
report_moved_paths "$@"
case "$1" in
  test)
    shift
    extra=test tier=()
    case "${1:-}" in
      '') tier=(-m "not more") ;;
      all) shift && extra=test,peers && export CLOZE_TEST_NOTEBOOK=1 ;;
      fast) shift && tier=(-m "not slow and not more") ;;
      gpu) shift && tier=(tests/gpu) && export CLOZE_TEST_GPU=1 ;;
    esac
    install "$extra"
    configure_environment
    # In two processes, one test file at a time, the slowest files first (tests/conftest.py): most of the time is compilation, and XLA
    # compiles on one core.
    [ $# -gt 0 ] || set -- --numprocesses 2 --dist loadfile --no-loadscope-reorder
    exec .venv/bin/python -m pytest ${tier[@]+"${tier[@]}"} "$@"
    ;;
  lint)
    shift
    lint "$@"
    ;;
  pod)
    python=$(find_python 99)
    exec "$python" -m pretrain "$@"
    ;;
  *)
    # What needs no packages is answered before any is installed.
    if ! compgen -G ".venv/installed-*" > /dev/null && python=$(find_python 99 2> /dev/null) && needs_no_packages "$python" "$1"; then
      exec "$python" -m pretrain "$@"
    fi
    install report
    configure_environment
    exec .venv/bin/python -m pretrain "$@"
    ;;
esac
