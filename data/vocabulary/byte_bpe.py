"""Train byte-level BPE (Radford et al. 2019), which has no unknown text and keeps all spaces.

There are two layouts. `roberta` has <s>=0 <pad>=1 </s>=2 <unk>=3, then the pieces, then <mask>, as
in the release of Liu et al. (2019). `gpt2` has the pieces, then <|endoftext|>.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from data.vocabulary.layouts import BYTE_BPE_LAYOUTS as LAYOUTS
from data.vocabulary.layouts import DEFAULT_BYTE_BPE_LAYOUT as DEFAULT
from data.vocabulary.released import ReleasedVocabulary, read_byte_bpe

MIN_PAIR_COUNT = 2  # occurrences of a pair that becomes a piece


def train_byte_bpe(
    texts: Iterable[str],
    size: int,
    layout: str = DEFAULT,
    lowercase: bool = False,
    reserved: int = 0,
) -> ReleasedVocabulary:
    """Train a vocabulary, which depends on the texts alone and not on the machine.

    Args:
      size: number of ids, special tokens included.
      lowercase: not supported; must be False.
      reserved: number of these ids that are left for tokens which are added later.

    Raises:
      ValueError: if an option is not valid, or there is too little text for the size; the message
        gives the largest possible size.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout {layout!r}: byte_bpe has {', '.join(LAYOUTS)}")
    if lowercase:
        raise ValueError(
            "byte_bpe does not fold case: its files, vocab.json and merges.txt, cannot record it; "
            "leave out --lowercase"
        )
    before, after = LAYOUTS[layout]
    num_specials = len(before) + len(after) + reserved
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    if size < num_specials + len(alphabet):
        raise ValueError(
            f"a {layout} vocabulary of bytes needs at least {num_specials + len(alphabet)} ids, "
            f"not {size}"
        )
    # The trainer gets no special tokens, since it might map a learned piece to one of them.
    trainer = trainers.BpeTrainer(
        vocab_size=size - num_specials,
        min_frequency=MIN_PAIR_COUNT,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    with _use_one_thread():
        tokenizer.train_from_iterator(texts, trainer)
    learned = json.loads(tokenizer.to_str())["model"]
    pieces = [*before, *sorted(learned["vocab"], key=learned["vocab"].get), *after]
    if (largest := len(pieces) + reserved) < size:
        raise ValueError(
            f"the text is too small for {size} ids; "
            f"it makes at most {largest}: --vocab-size {largest}"
        )
    merges = "".join(f"{left} {right}\n" for left, right in learned["merges"])
    return read_byte_bpe(
        json.dumps({piece: i for i, piece in enumerate(pieces)}, ensure_ascii=False),
        f"#version: 0.2\n{merges}",
    )


@contextlib.contextmanager
def _use_one_thread() -> Iterator[None]:
    """Make the tokenizers library use one thread within the block.

    It splits the few words of each merge among threads and waits for all of them, which is 3 to 9
    times slower on busy cores.
    """
    name = "TOKENIZERS_PARALLELISM"
    before = os.environ.get(name)
    os.environ[name] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
