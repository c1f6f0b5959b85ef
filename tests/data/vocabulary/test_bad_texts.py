"""Characters that are rare in texts, in each kind of vocabulary."""

import pytest

from data.vocabulary.load import train_vocabulary
from data.vocabulary.word_level import make_text_vocabulary, make_word_vocabulary

TEXTS = [f"the cat {i} sat on the mat" for i in range(300)]


@pytest.mark.parametrize("kind", ["sentencepiece", "byte_bpe", "words"])
def test_half_of_a_character_is_refused(kind):
    if kind == "sentencepiece":
        vocabulary = train_vocabulary(TEXTS, 40)
    elif kind == "byte_bpe":
        vocabulary = train_vocabulary(TEXTS, 262, "gpt2", "byte_bpe")
    else:
        vocabulary = make_word_vocabulary(TEXTS)
    for encode in (vocabulary.encode_batch, vocabulary.encode_with_offsets):
        with pytest.raises(ValueError, match=r"2 text\(s\) of up to 3 characters: .* cannot read"):
            encode(["a\ud800b", "a"])


def test_words_are_counted_between_the_blanks_of_the_encoder():
    """Four control characters are no blanks of it."""
    text = "foo\x1cbar baz\u2003qux \x85x"
    vocabulary = make_word_vocabulary([text])
    assert vocabulary.unk not in vocabulary.encode(text)
    assert {*vocabulary.pieces} == {*make_text_vocabulary([text]).pieces}
