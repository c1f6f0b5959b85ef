"""Refusing to score or publish a head that an import began at random, because the imported folder had none."""

from pretrain.convert import family_in
from pretrain.convert.finite import printable

FLAG = "--allow-random-head"


def add_argument(parser):
    """The flag that allows it, for a verb that uses a head."""
    parser.add_argument(
        FLAG,
        action="store_true",
        help="use an imported model whose head was not in its folder, and is random until it is trained",
    )


def check_head(trained, verb, allowed, sentence_heads=True):
    """Raise ValueError, with the names of the missing tensors, where `verb` uses parameters that an import began at random.

    They are random at step 0 only: any training trains them. sentence_heads: whether the verb uses the pooler and the heads of sentence pairs.
    """
    missing = [] if allowed or trained.step else (trained.origin() or {}).get("missing", [])
    if not sentence_heads:
        unneeded = family_in(trained.run.model).hugging_face.sentence_heads
        missing = [name for name in missing if not name.startswith(unneeded)]
    if not missing:
        return
    names = ", ".join(printable(name) for name in missing[:3]) + (
        f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    )
    raise ValueError(
        f"{trained.workdir}: {len(missing)} tensors were not in the folder that was imported, so they are random: {names}. `{verb}` uses them. "
        f"Train the model first, or add {FLAG} to use it as it is. `features`, `attention`, `senses` and `finetune` need no head"
    )
