"""Compiler options for programs whose results are compared closely."""

import os

# With the older fusion that tests/conftest.py selects, the order of a sum depends on what else is
# computed. Comparisons of bits, and of Adam's updates from gradients near zero, need the default
# fusion.
AS_USERS_DO = (
    {"xla_cpu_use_fusion_emitters": True} if "fusion_emitters" in os.environ["XLA_FLAGS"] else None
)
