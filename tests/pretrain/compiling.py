"""How programs are compiled whose numbers are compared closely."""

import os

# Where tests/conftest.py has XLA fuse in its older way, the order of a sum depends on what else is
# computed: bits, and what Adam makes of
# gradients next to zero, are compared in the usual one.
AS_USERS_DO = (
    {"xla_cpu_use_fusion_emitters": True} if "fusion_emitters" in os.environ["XLA_FLAGS"] else None
)
