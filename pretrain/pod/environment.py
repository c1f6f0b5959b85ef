"""What a training on a TPU worker finds in its environment: one table, each row with its reason.

What is not in the table is left out because no document and no measurement of ours speaks for it: LIBTPU_INIT_ARGS (no flag was
measured), GLIBC_TUNABLES (launch.sh sets it for training on a CPU, whose buffers are malloc's; one arena for a TPU host's hundred
threads was never tried), TF_CPP_MIN_LOG_LEVEL (the program sets it itself). `--env NAME=VALUE` adds to the table or replaces a row.
"""

# name -> (value, reason). {workdir} is the --workdir of the run; without one the rows that name it are left out.
ENVIRONMENT = {
    "CLOZE_CLUSTER": (
        "tpu",
        "over ssh a worker's shell has no TPU_WORKER_HOSTNAMES: JAX must ask the metadata server who its neighbours are",
    ),
    "JAX_COMPILATION_CACHE_DIR": (
        "{workdir}/compiled",
        "a preempted pod's disks are gone; in the bucket the compiled step outlives them. JAX trusts what it finds there, "
        "so nobody else may write to it (JAX's documentation of the persistent compilation cache)",
    ),
    "JAX_PLATFORMS": (
        "tpu,cpu",
        "a TPU that cannot be opened is an error at once; unset, JAX goes on with the CPU (seen with JAX 0.10 on a host without TPU)",
    ),
    "NO_GCE_CHECK": (
        "false",
        "`python -m pretrain` sets true, which saves machines elsewhere a wait; here TensorFlow's gs:// must ask the metadata "
        "server for the worker's credentials (tsl/platform/cloud/google_auth_provider.cc)",
    ),
    "PYTHONFAULTHANDLER": ("1", "a crash inside a library leaves the Python stacks in the log"),
    "PYTHONUNBUFFERED": (
        "1",
        "the log is a file: without it lines arrive in blocks, and the last ones of a killed worker never",
    ),
}


def variables(workdir=None, extra=()):
    """{name: value} for a run in `workdir`; `extra` are NAME=VALUE words that win over the table."""
    rows = {
        name: value
        for name, (value, _) in ENVIRONMENT.items()
        if workdir or "{workdir}" not in value
    }
    rows = {name: value.format(workdir=(workdir or "").rstrip("/")) for name, value in rows.items()}
    for word in extra:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"--env {word!r}: expected NAME=VALUE")
        rows[name] = value
    return dict(sorted(rows.items()))
