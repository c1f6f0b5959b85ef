"""The names that a checkout and the installed wheel have for the same things.

A checkout has the packages pretrain, models, data and configs. The wheel has them below one, as
`cloze.pretrain` and so on: its build renames them in import statements, and in no string
(distribution/cloze_backend.py). A string that names a module is therefore made from these.
"""

PACKAGES = ("pretrain", "models", "data", "configs")  # of a checkout
PACKAGE = __name__.removesuffix(".host.command")  # "cloze.pretrain" in the wheel
PREFIX = PACKAGE.removesuffix("pretrain")  # of the four packages: "", in the wheel "cloze."
# In messages that say what to run next. In a checkout `cloze` is only in .venv/bin.
PROGRAM = "cloze" if PREFIX else f"python -m {PACKAGE}"


def explain_missing_module(name: str) -> str:
    """Return what to import in a user's file instead of a missing module, "" for one of others."""
    top = name.partition(".")[0]
    if PREFIX and top in PACKAGES:
        return f"the installed Cloze is one package: import {PREFIX}{name}"
    if not PREFIX and top == "cloze":
        return "a checkout has no package of that name: leave `cloze.` out"
    return ""
