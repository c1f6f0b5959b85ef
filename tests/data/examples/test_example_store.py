"""Fine-tuning examples as a source: which stores are one, how they describe themselves, what they
refuse.
"""

import pytest

from data.config import Data
from data.examples.example_store import ExampleStore
from data.examples.labelled_examples import Example
from data.examples.labelled_store import write_labelled
from data.examples.tagged_sentences import Sentence, write_tagged
from data.examples.text_pairs import write_pairs
from data.objectives import Classification, MaskedLm, Text2Text
from data.pipeline import Stream
from data.store.kinds import open_source
from data.store.reader import Store
from models.config.bert import BertConfig
from models.config.classifier import ClassifierConfig
from pretrain.config import Run
from pretrain.settings.overrides import ConfigError
from pretrain.training.fits.model_fit import check_fit

CLASSES = ("no", "yes")


@pytest.fixture(scope="module")
def examples(tmp_path_factory, vocabulary, texts):
    """Return a store of twelve labelled texts."""
    parts = {
        "train": [Example((text,), CLASSES[i % 2], "here") for i, text in enumerate(texts[:12])]
    }
    path = tmp_path_factory.mktemp("examples") / "store"
    return write_labelled(path, vocabulary, parts, CLASSES, digest="d")


def test_a_store_of_examples_is_opened_as_one_and_a_corpus_is_not(examples, store):
    found = open_source(examples.path)
    assert type(found) is ExampleStore and found.fingerprint == examples.fingerprint
    assert (found.label_names, found.examples_digest, found.num_skipped_words) == (CLASSES, "d", 0)
    assert type(open_source(store.path)) is Store
    with pytest.raises(ValueError, match="its documents have no labels; `finetune` makes"):
        ExampleStore.open(store.path)
    with pytest.raises(FileNotFoundError, match="is not a token store"):
        open_source(examples.path / "nowhere")


def test_an_example_store_describes_itself(tmp_path, vocabulary):
    # The vocabulary has no token for a zero-width space.
    sentence = Sentence(("word", "\u200b"), ("A", "B"), "here", 1, 1)
    tagged = write_tagged(tmp_path / "tags", vocabulary, {"train": [sentence]}, ("A", "B"))
    assert tagged.label_names == ("A", "B")
    assert tagged.num_skipped_words == 1
    scored = {"train": [Example(("some text",), 0.5, "here")]}
    assert write_labelled(tmp_path / "scores", vocabulary, scored, ()).label_names == ()
    pairs = write_pairs(tmp_path / "pairs", vocabulary, Text2Text(), {"train": [("a b", "c")]})
    assert (pairs.label_names, pairs.examples_digest) == (None, None)


def test_pairs_are_read_by_the_form_that_they_were_written_in(tmp_path, vocabulary):
    written = Text2Text(prefix="cola ", labels=CLASSES, words=CLASSES)
    pairs = {"train": [("cola a b", "no")]}
    source = write_pairs(tmp_path / "pairs", vocabulary, written, pairs)
    source.check_objective(written)
    for other in (Text2Text(prefix="sst2 ", labels=CLASSES, words=CLASSES), Text2Text()):
        with pytest.raises(ValueError, match="written as .*cola.*name the store of the run"):
            source.open_rows("train", other)


def test_a_model_and_its_examples_number_the_same_classes(examples, store):
    def run_of(labels, objective):
        encoder = BertConfig(vocab=512, length=128, width=16, depth=1, num_heads=2, mlp=32)
        model = ClassifierConfig(encoder=encoder, labels=labels)
        return Run(model=model, data=Data(objective=objective))

    objective = Classification(length=32)
    check_fit(run_of(CLASSES, objective), examples)
    with pytest.raises(ConfigError, match="has the labels 'no', 'yes', the model 'yes', 'no'"):
        check_fit(run_of(CLASSES[::-1], objective), examples)
    with pytest.raises(ConfigError, match="its documents have no labels"):
        check_fit(run_of(CLASSES, objective), store)


def test_a_model_may_go_on_pretraining_on_the_texts_of_examples(examples):
    data = Data(objective=MaskedLm(length=16, max_predictions=4, rows="documents"), batch_size=4)
    batch = Stream(examples, data).build_batch(0)
    assert batch["token_ids"].shape == (4, 16) and "labels" in batch
