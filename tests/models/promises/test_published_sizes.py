"""Each family has the number of parameters that its paper prints or its released checkpoint has."""

import jax
import pytest

from models.config.albert import AlbertConfig
from models.config.bart import BartConfig
from models.config.bert import BertConfig
from models.config.deit import DeitConfig
from models.config.distilbert import DistilBertConfig
from models.config.electra import ElectraConfig
from models.config.elmo import ElmoConfig
from models.config.gpt import GptConfig
from models.config.gpt2 import Gpt2Config
from models.config.gpt_bert import GptBertConfig
from models.config.modernbert import ModernBertConfig
from models.config.roberta import RobertaConfig
from models.config.seq2seq_lstm import Seq2SeqLstmConfig
from models.config.t5 import T5Config
from models.config.t5gemma import T5GemmaConfig
from models.config.transformer import TransformerConfig
from models.config.transformer_xl import TransformerXLConfig
from models.config.vit import VitConfig
from models.layers.layer_layout import flatten_params
from pretrain.config import load
from tests.tiny import compute_shapes

TINY16 = dict(width=192, num_heads=3, mlp=768)
SMALL16 = dict(width=384, num_heads=6, mlp=1536)
LARGE = dict(width=1024, depth=24, num_heads=16, mlp=4096)
SMALL_ELECTRA = ElectraConfig(
    **dict(embedding=128, width=256, num_heads=4, mlp=1024),
    **dict(generator_width=64, generator_num_heads=1, generator_mlp=256),
)
LARGE_ELECTRA = ElectraConfig(embedding=1024, **LARGE)
# Vocabularies of 160,000 and 80,000 words and an output of 80,000: a table here is a third of that.
SUTSKEVER = Seq2SeqLstmConfig(
    vocab=320_000 // 3, width=1000, embedding=1000, depth=4, direction="backward", score=None
)
ENWIK8 = dict(vocab=204, depth=12, num_heads=8, head_width=64, clusters=None)
T5GEMMA_LARGE = T5GemmaConfig(**LARGE | dict(mlp=2816), decoder_depth=24, num_key_heads=16)
T5GEMMA_XL = T5GemmaConfig(
    **dict(width=2048, depth=24, decoder_depth=24, num_heads=32, num_key_heads=32, mlp=5120)
)
# (configuration or its name, parts that are counted or "" for all, parameters, rounded to)
SIZES = [
    # Table 1; encoder, embeddings and pooler. The head: one layer, a norm, biases, the order.
    (AlbertConfig(), "albert", 11_683_584),
    (AlbertConfig(), "", 11_683_584 + 128 * (768 + 3) + 30_000 + 2 * (768 + 1)),
    (AlbertConfig(**LARGE), "albert", 17_683_968),
    (AlbertConfig(width=2048, depth=24, num_heads=32, mlp=8192), "albert", 58_724_864),
    (AlbertConfig(width=4096, depth=12, num_heads=64, mlp=16384), "albert", 222_595_584),
    (BartConfig(), "", 139_420_416),
    (BartConfig(**LARGE | dict(depth=12, decoder_depth=12)), "", 406_291_456),
    # Base with its pooler and both heads, the tied table counted once; large without heads.
    (BertConfig(), "", 110_106_428),
    (BertConfig(scan=False), "", 110_106_428),
    (BertConfig(**LARGE), "bert", 335_141_888),
    # As DistilBertForMaskedLM; the teacher is BERT-base without pooler and sentence head.
    (DistilBertConfig(teacher_depth=None), "", 66_985_530),
    (DistilBertConfig(), "student", 66_985_530),
    (DistilBertConfig(), "teacher", 110_106_428 - (768 * 768 + 768) - (2 * 768 + 2)),
    # As transformers counts an ElectraModel, the discriminator without its head, and an
    # ElectraForMaskedLM; 14, 110 and 335 million in tables 1 and 2.
    (SMALL_ELECTRA, "embeddings discriminator", 13_483_008),
    (SMALL_ELECTRA, "embeddings generator mlm_head", 4_620_026),
    (ElectraConfig(), "embeddings discriminator", 108_891_648),
    (ElectraConfig(), "embeddings generator mlm_head", 33_740_602),
    (LARGE_ELECTRA, "embeddings discriminator", 334_092_288),
    (LARGE_ELECTRA, "embeddings generator mlm_head", 51_295_290),
    # 93.6, 28.0 and 13.6 M are printed with the released weights, without the targets.
    (ElmoConfig(), "words bilm", 93_600_848),
    (ElmoConfig(), "target_embedding lm_head", 793_471 * 513),
    (ElmoConfig(), "mix", 4),
    (ElmoConfig(cells=2048, width=256, highways=1), "words bilm", 28_027_728),
    (ElmoConfig(cells=1024, width=128, highways=1), "words bilm", 13_593_296),
    # As OpenAIGPTLMHeadModel and GPT2LMHeadModel count the released ones.
    (GptConfig(), "", 116_534_784),
    (GptConfig(scan=False), "", 116_534_784),
    (Gpt2Config(), "", 124_439_808),
    ("gpt2", "", 124_439_808),
    ("gpt2_medium", "", 354_823_168),
    ("gpt2_large", "", 774_030_080),
    ("gpt2_xl", "", 1_557_611_200),
    # ESM-2 with its heads of masks and contacts, and ESM C, as transformers counts the released ones.
    *((name, "", size) for name, size in (
        ("esm2_8m", 7_512_474), ("esm2_35m", 33_501_394), ("esm2_150m", 148_140_154),
        ("esm2_650m", 651_043_254), ("esm2_3b", 2_839_005_634), ("esmc_300m", 332_997_184),
        ("esmc_600m", 575_036_992),
    )),
    # As the authors' code counts their models of 10 and 100 million words.
    (GptBertConfig(vocab=8192, width=384, num_heads=6, mlp=1280), "", 29_892_164),
    (GptBertConfig(), "", 119_454_532),
    # Zaremba's medium and large models as Merity et al. 2016 print them (table 3), and the large one
    # tied (Press and Wolf 2016, table 3).
    ("lstm_lm", "", 20, 1e6),
    (("lstm_lm", "model.width=1500"), "", 66, 1e6),
    (("lstm_lm", "model.width=1500", "model.tied=true"), "", 51, 1e6),
    # Base of ModernBERT, Ettin's 17M to 68M, large, Ettin's 1B, mmBERT's small and base.
    (ModernBertConfig(), "", 149_655_232),
    (ModernBertConfig(depth=7, width=256, mlp=384, num_heads=4), "", 16_913_600),
    (ModernBertConfig(depth=10, width=384, mlp=576, num_heads=6), "", 32_081_344),
    (ModernBertConfig(depth=19, width=512, mlp=768, num_heads=8), "", 68_457_664),
    (ModernBertConfig(depth=28, width=1024, mlp=2624, num_heads=16), "", 395_881_664),
    (ModernBertConfig(depth=28, width=1792, mlp=3840, num_heads=28), "", 1_031_314_112),
    (ModernBertConfig(vocab=256_000, width=384, num_heads=6), "", 140_897_536),
    (ModernBertConfig(vocab=256_000), "", 307_786_240),
    # T5Gemma's small, base, large and XL.
    ("t5gemma_small", "", 312_517_632),
    (T5GemmaConfig(), "", 591_490_560),
    (T5GEMMA_LARGE, "", 1_241_761_792),
    (T5GEMMA_XL, "", 3_766_980_608),
    # Embeddings; attention, distances, MLP and norms of 6 layers; the last norm.
    ("music_transformer", "", 390 * 256 + 6 * (4 * 256 * 512 + 1024 * 512 + 526_592) + 2 * 256),
    # google/reformer-enwik8 is said to have 149 M parameters; it has 258 ids.
    (("reformer_enwik8", "model.vocab=258"), "", 149_182_722),
    # The encoder with its pooler; the head adds a layer, a norm and a bias per token.
    (RobertaConfig(), "roberta", 124_645_632),
    (RobertaConfig(), "mlm_head", 768 * (768 + 3) + 50_265),
    (RobertaConfig(**LARGE), "roberta", 355_359_744),
    # Section 3.4: 384 M parameters, of which 32 M are recurrent connections on each side.
    (SUTSKEVER, "", 384, 1e6),
    (SUTSKEVER, "encoder", 32, 1e6),
    (SUTSKEVER, "decoder", 32, 1e6),
    # Section 7.2, table 1: 95 M.
    ("sparse_transformer_enwik8", "", 94_950_400),
    # Encoder, decoder, one relative table a stack, and one table of tokens if tied, two if not.
    (T5Config(width=512, depth=6, decoder_depth=6, num_heads=8, mlp=2048), "", 60_506_624),
    (T5Config(), "", 222_903_552),
    (T5Config(gated=True, tied=False, mlp=2048), "", 247_577_856),
    (T5Config(), "encoder_bias decoder_bias", 2 * 32 * 12),
    # WikiText-103: the paper prints 151 M and 257 M. transformers counts 285,205,322 of the large
    # model as released. The paper prints 41 M and 277 M for 12 and 24 layers of enwik8.
    ("transformer_xl_base", "", 151_119_838),
    ("transformer_xl_large", "", 285_205_322),
    (TransformerXLConfig(**ENWIK8, width=512, mlp=2048), "", 41, 1e6),
    (
        TransformerXLConfig(**ENWIK8 | dict(depth=24, head_width=128), width=1024, mlp=3072),
        *("", 277, 1e6),
    ),
    *((VitConfig(**sizes), "", size) for sizes, size in (
        ({}, 86_567_656), (SMALL16, 22_050_664), (TINY16, 5_717_416), (LARGE, 304_326_632),
    )),
    *((DeitConfig(**sizes), "", size) for sizes, size in (
        ({}, 87_338_192), (SMALL16, 22_436_432), (TINY16, 5_910_800),
    )),
    # As transformers counts xlnet-base-cased and large, and the bias of 32,000.
    ("xlnet_base", "", 116_718_336 + 32_000),
    ("xlnet_large", "", 360_268_800 + 32_000),
    # Configurations, with the heads that their objectives train.
    *((name, "", size) for name, size in (
        ("albert_xxlarge", 223_158_450), ("electra_small", 14_196_219), ("roberta_base", 125_288_025),
        ("roberta_large", 356_461_657), ("t5_large", 737_668_096), ("t5_3b", 2_851_598_336),
        ("t5_11b", 11_307_321_344),
    )),
    # Tables 2.1 and D.1 of GPT-3, whose vocabulary is 50,257: 3 or 4 digits.
    *((f"gpt3_{name}", "", size, digit) for name, size, digit in (
        ("125m", 125, 1e6), ("350m", 356, 1e6), ("760m", 760, 1e6), ("1_3b", 132, 1e7),
        ("2_7b", 265, 1e7), ("6_7b", 666, 1e7), ("13b", 1285, 1e7), ("175b", 1746, 1e8),
    )),
]  # fmt: skip


def list_cases():
    """Return the cases; `launch.sh test` runs the first one of each class and of each name's
    beginning.
    """
    seen, cases = set(), []
    for config, parts, *numbers in SIZES:
        name = config[0] if isinstance(config, tuple) else config
        name = name if isinstance(name, str) else type(name).__name__.removesuffix("Config")
        kind = name.partition("_")[0], parts
        marks = [pytest.mark.more] if kind in seen else []
        seen.add(kind)
        case = config, parts, *numbers
        cases.append(pytest.param(case, id=f"{name} {parts or 'all'} {numbers[0]}", marks=marks))
    return cases


@pytest.mark.parametrize("case", list_cases())
def test_published_sizes(case):
    config, parts, size, *digit = case
    if isinstance(config, str | tuple):
        name, *changes = (config,) if isinstance(config, str) else config
        changes += ["model.vocab=50257"] if name.startswith("gpt3") else []
        config = load(name, changes).model
    shapes = flatten_params(compute_shapes(config)[1])
    names = parts.split() or {path.partition("/")[0] for path in shapes}
    found = sum(leaf.size for path, leaf in shapes.items() if path.partition("/")[0] in names)
    assert round(found / digit[0]) == size if digit else found == size


@pytest.mark.parametrize("name", ["base", "big", "8 layers"])
def test_the_transformers_sizes_follow_from_the_papers_equations(name):
    """Table 3, in millions; the vocabulary has about 37,000 tokens (section 5.1)."""
    sizes, published = {
        "base": ({}, 65e6),
        "big": (dict(width=1024, num_heads=16, mlp=4096), 213e6),
        "8 layers": (dict(depth=8, decoder_depth=8), 80e6),
    }[name]
    config = TransformerConfig(**sizes)
    V, D, F, N = config.vocab, config.width, config.mlp, config.depth
    attention, mlp, norm = 4 * (D * D + D), D * F + F + F * D + D, 2 * D
    expected = V * D + N * (attention + mlp + 2 * norm) + N * (2 * attention + mlp + 3 * norm)
    found = sum(leaf.size for leaf in jax.tree.leaves(compute_shapes(config)[1]))
    assert found == expected and abs(found / published - 1) < 0.04
