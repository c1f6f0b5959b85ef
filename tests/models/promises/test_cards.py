"""The class that a model card advises opens the exported folder, of every family with every head."""

import dataclasses
import re

import pytest

from data.config import Data
from data.images.encoding import ImageEncoding
from data.vocabulary.load import train_vocabulary
from models.config.base import ImageConfig
from models.config.embedder import EmbedderConfig
from pretrain.api.importing import make_starting_run
from pretrain.config import Run
from pretrain.convert.head_maps import HEAD_CONVERSIONS
from pretrain.convert.read_write import write_model
from pretrain.families import FAMILIES
from pretrain.finetune.encoders import make_head_objective
from pretrain.publish.cards.card_texts import name_auto_class
from pretrain.publish.cards.loading_lines import make_loading_lines
from tests.models.promises.test_heads import EXPORTED, FITTING, name_pair
from tests.pretrain.finetune.encoders import TEXT, draw_params

LAYOUTS = (("bert", "bpe"), ("t5", "bpe"), ("transformer", "bpe"), ("gpt", "bpe"))
BYTE_LAYOUTS = (("roberta", "byte_bpe"), ("gpt2", "byte_bpe"))
UNHEADED = [(name, None) for name, family in FAMILIES.items() if family.hugging_face]


@pytest.fixture(scope="module")
def vocabularies():
    """Return a vocabulary of each layout."""
    small = [train_vocabulary(TEXT * 20, 72, layout=a, algorithm=b) for a, b in LAYOUTS[:1]]
    small += [train_vocabulary(TEXT * 20, 170, layout="t5", algorithm="bpe")]
    small += [train_vocabulary(TEXT * 20, 70, layout=a, algorithm=b) for a, b in LAYOUTS[2:]]
    return small + [
        train_vocabulary(TEXT * 20, 290, layout=a, algorithm=b) for a, b in BYTE_LAYOUTS
    ]


def fit_config(name, tiny, vocabularies):
    """Return a tiny configuration that `transformers` has too, and what it reads."""
    config = dataclasses.replace(tiny, **FITTING.get(name, {}))
    if isinstance(config, ImageConfig):
        return config, ImageEncoding(tuple(map(str, range(config.classes))))
    for vocabulary in vocabularies:
        if all(getattr(vocabulary, role) is not None for role in FAMILIES[name].token_roles):
            ids = {
                field: getattr(vocabulary, role) + offset
                for field, (role, offset) in config.vocabulary_ids.items()
            }
            return dataclasses.replace(config, vocab=vocabulary.size, **ids), vocabulary
    raise AssertionError(f"no vocabulary has the tokens of {name}")


@pytest.mark.more
@pytest.mark.parametrize(("name", "head"), [*UNHEADED, *EXPORTED], ids=lambda x: x and name_pair(x))
def test_the_advised_class_opens_the_folder(name, head, make, tiny_configs, vocabularies, tmp_path):
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    pytest.importorskip("torch", reason="the extra `peers` is not installed")
    config, encoding = fit_config(name, tiny_configs[name], vocabularies)
    architecture = FAMILIES[name].hugging_face.architecture
    if not hasattr(transformers, architecture):
        pytest.skip(f"transformers {transformers.__version__} has no {architecture}")
    if head:
        config = head(encoder=config.as_encoder())
        run = Run(model=config, data=Data(objective=make_head_objective(config)))
        architecture = FAMILIES[name].hugging_face.head_map.name_class(
            HEAD_CONVERSIONS[head].suffix
        )
        params = draw_params(run)
    elif FAMILIES[name].make_import_objective:
        params = draw_params(run := make_starting_run(config))
    else:  # no folder is imported as it
        run = Run(model=config, data=Data(objective=FAMILIES[name].objectives[0]()))
        params = make(config)[1]
    write_model(tmp_path / "out", config, params, encoding)
    lines = make_loading_lines(run, encoding, str(tmp_path / "out"))
    found = re.findall(r"^model = (\w+)\.from_pretrained", "\n".join(lines), re.MULTILINE)
    if head is EmbedderConfig:  # sentence-transformers opens it, by this class
        assert lines[1].startswith("model = SentenceTransformer(") and not found
        found = ["AutoModel"]
    (advised,) = found
    auto = getattr(transformers, advised)
    model, info = auto.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert type(model).__name__ == architecture
    unread = ("pooler",) if head is EmbedderConfig else ()
    assert not [key for key in info["missing_keys"] if not key.startswith(unread)]
    assert not info["mismatched_keys"] and not info["error_msgs"]


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [
        ("ModernBertForMaskedLM", "AutoModelForMaskedLM"),  # it has no class for pretraining
        ("BertForPreTraining", "AutoModelForPreTraining"),
        ("MarianMTModel", "AutoModelForSeq2SeqLM"),
        ("DebertaV2Model", "AutoModel"),
        ("ReformerModelWithLMHead", "AutoModelForCausalLM"),
    ],
)
def test_the_class_follows_from_the_architecture(architecture, expected):
    assert name_auto_class(architecture) == expected
