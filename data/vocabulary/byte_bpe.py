"""Byte-level BPE (Radford et al. 2019), trained: no text is unknown to it, and every blank is kept.

Two layouts. `roberta`: <s>=0 <pad>=1 </s>=2 <unk>=3, then the pieces, and <mask> at the end, as Liu et al. (2019) released theirs.
`gpt2`: the pieces, and <|endoftext|> at the end.
"""

import contextlib
import json
import os
from collections.abc import Iterable

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from data.vocabulary.layouts import BYTE_BPE as LAYOUTS
from data.vocabulary.layouts import DEFAULT_OF_BYTES as DEFAULT
from data.vocabulary.released import ReleasedVocabulary, read_byte_bpe

RARE = 2  # a pair seen less often than this is no piece


def train_byte_bpe(
    texts: Iterable[str], size: int, layout: str = DEFAULT, lowercase: bool = False
) -> ReleasedVocabulary:
    """Train a vocabulary of `size` ids, specials included, on `texts`. The same texts give the same one on any machine.

    Raises ValueError if the texts are too few for the size; the message gives the largest size that they allow.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout {layout!r}: byte_bpe has {', '.join(LAYOUTS)}")
    if lowercase:
        raise ValueError(
            "byte_bpe keeps text as it is: its files, vocab.json and merges.txt, cannot say that case is folded"
        )
    before, behind = LAYOUTS[layout]
    specials, alphabet = len(before) + len(behind), sorted(pre_tokenizers.ByteLevel.alphabet())
    if size < specials + len(alphabet):
        raise ValueError(
            f"a {layout} vocabulary of bytes needs at least {specials + len(alphabet)} ids, not {size}"
        )
    # The trainer is told of no special piece: a piece that it learns could be mapped to it.
    trainer = trainers.BpeTrainer(
        vocab_size=size - specials,
        min_frequency=RARE,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    with _one_thread():
        tokenizer.train_from_iterator(texts, trainer)
    learned = json.loads(tokenizer.to_str())["model"]
    pieces = [*before, *sorted(learned["vocab"], key=learned["vocab"].get), *behind]
    if len(pieces) < size:
        raise ValueError(
            f"the text is too small for {size} ids; it makes at most {len(pieces)}: --vocab-size {len(pieces)}"
        )
    merges = "".join(f"{left} {right}\n" for left, right in learned["merges"])
    return read_byte_bpe(
        json.dumps({piece: i for i, piece in enumerate(pieces)}, ensure_ascii=False),
        f"#version: 0.2\n{merges}",
    )


@contextlib.contextmanager
def _one_thread():
    """The library divides each merge's few words among threads and waits for all: 3 to 9 times slower where others use the cores."""
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
