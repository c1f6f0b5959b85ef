"""The rows of the tables of plans: all of them, and the few of docs/plans.md."""

from __future__ import annotations

from typing import NamedTuple


class Plan(NamedTuple):
    """One row of the table.

    Attributes:
      config: name of a configuration.
      topology: TPU slice: the paper's number of chips if it has one, else a usual size.
      overrides: `path=value` arguments, separated by spaces.
    """

    config: str
    topology: str
    overrides: str = ""

    @property
    def label(self) -> str:
        """Return the first cell of the row."""
        return f"`{self.config}{' ' if self.overrides else ''}{self.overrides}`"

    @property
    def key(self) -> str:
        """Return the arguments of `plan`, by which the plan is recorded."""
        return " ".join([self.config, "--topology", self.topology, *self.overrides.split()])


LONG_ROWS = (
    "model.length=8192 data.objective.length=8192 data.objective.max_predictions=1229 "
    "data.batch_size=16"
)
ROWS_8192 = "data.objective.length=8192 data.batch_size=16"
XLNET_8192 = "model.length=8192 data.objective.length=8192 data.batch_size=16"
MODERN_8192 = (
    "data.objective.length=8192 data.objective.max_predictions=2464 data.batch_size=576 "
    "train.microbatches=9"
)
MODERN_8192_V5E = (
    "data.objective.length=8192 data.objective.max_predictions=2464 data.batch_size=512 "
    "train.microbatches=2"
)
BYTES_8192 = "model.length=8192 data.objective.length=8192"
PLANS = (
    Plan("bert_base", "v4:2x2x4"),
    Plan("bert_base", "v4:2x2x4", "model.scan=false"),
    Plan("bert_base", "v4:4x4x4"),
    Plan("bert_base", "v4:4x4x4", "mesh.data=4 mesh.fsdp=16"),
    Plan("bert_large", "v4:2x2x4"),
    Plan("bert_large", "v4:2x2x4", "model.remat=false"),
    Plan("bert_large", "v4:4x4x4"),
    Plan("bert_large", "v4:4x4x4", "mesh.data=1 mesh.fsdp=-1"),
    Plan("bert_large_512", "v5p:2x2x4"),
    Plan("ettin_17m", "v5p:4x4x4", "train.microbatches=3"),
    Plan("ettin_32m", "v5p:4x4x4", "train.microbatches=3"),
    Plan("ettin_68m", "v5p:4x4x4", "train.microbatches=6"),
    Plan("modernbert_base", "v5p:4x4x4", "train.microbatches=9"),
    Plan("modernbert_base", "v5p:4x4x4", MODERN_8192),
    Plan("modernbert_base", "v5e:16x16", "train.microbatches=3"),
    Plan("modernbert_base", "v5e:16x16", MODERN_8192_V5E),
    Plan("modernbert_large", "v5p:4x4x4", "train.microbatches=11"),
    Plan("modernbert_large", "v5p:4x4x4", MODERN_8192),
    Plan("modernbert_large", "v5e:16x16", "data.batch_size=5120 train.microbatches=5"),
    Plan("ettin_1b", "v5p:4x4x4", "train.microbatches=9"),
    Plan("ettin_decoder_150m", "v5p:4x4x4", "train.microbatches=9"),
    Plan("neobert", "v5p:4x4x4", "train.microbatches=4"),
    Plan("eurobert_210m", "v5p:4x4x4", "train.microbatches=4"),
    Plan("esm2_8m", "v5e:4x4", "train.microbatches=8"),
    Plan("esm2_35m", "v5e:8x8", "train.microbatches=8"),
    Plan("esm2_150m", "v5p:4x4x4", "train.microbatches=4"),
    Plan("esm2_650m", "v5e:16x16", "train.microbatches=4"),
    Plan("esm2_650m", "v5p:4x4x4", "train.microbatches=4"),
    Plan("esm2_3b", "v5p:4x4x4"),
    Plan("esmc_300m", "v5p:4x4x4", "train.microbatches=4"),
    Plan("esmc_600m", "v5p:4x4x4", "train.microbatches=4"),
    Plan("roberta_base", "v5p:4x4x4"),
    Plan("roberta_large", "v5p:4x4x4", "train.microbatches=4"),
    Plan("albert_base", "v5p:4x4x4"),
    Plan("albert_large", "v5p:4x4x4"),
    Plan("albert_xlarge", "v5p:4x4x4"),
    Plan("albert_xxlarge", "v5p:4x4x4"),
    Plan("electra_small", "v5e:2x2"),
    Plan("electra_small", "v5e:2x2", "model.scan=false"),
    Plan("electra_base", "v5e:4x4"),
    Plan("electra_large", "v5p:4x4x4", "model.remat=false"),
    Plan("deberta_v3_xsmall", "v5p:2x2x4"),
    Plan("deberta_v3_small", "v5p:2x2x4"),
    Plan("deberta_v3_base", "v5p:2x2x4"),
    Plan("deberta_v3_large", "v5p:2x2x4"),
    Plan("distilbert_base", "v5p:2x2x4", "train.microbatches=5"),
    Plan("t5_small", "v5e:4x4"),
    Plan("t5_base", "v5e:4x4"),
    Plan("t5_base", "v5p:2x2x4"),
    Plan("t5_v1_1_base", "v5e:4x4"),
    Plan("t5gemma_small", "v5p:2x2x4"),
    Plan("t5_large", "v5p:2x2x4"),
    Plan("t5_3b", "v5p:4x4x4"),
    Plan("t5_11b", "v5p:4x4x8"),
    Plan("bart_base", "v5p:4x4x4"),
    Plan("bart_large", "v5p:4x4x4", "train.microbatches=5"),
    Plan("transformer_base", "v5e:2x4"),
    Plan("transformer_big", "v5e:2x4"),
    Plan("gpt", "v5e:4x4"),
    Plan("gpt_bert_babylm", "v5e:2x2"),
    Plan("gpt2", "v5p:2x2x4"),
    Plan("grover_base", "v5p:2x2x4"),
    Plan("gpt2_medium", "v5p:2x2x4"),
    Plan("gpt2_large", "v5p:2x2x4"),
    Plan("gpt2_xl", "v5p:2x2x4"),
    Plan("gpt3_125m", "v5p:2x2x4"),
    Plan("gpt3_350m", "v5p:2x2x4"),
    Plan("gpt3_760m", "v5p:2x2x4"),
    Plan("gpt3_1_3b", "v5p:2x2x4"),
    Plan("gpt3_2_7b", "v5p:4x4x4"),
    Plan("gpt3_6_7b", "v5p:4x4x4"),
    Plan("gpt3_13b", "v5p:4x4x8"),
    Plan("gpt3_175b", "v5p:8x8x8"),
    Plan("linformer_base", "v5e:4x4"),
    Plan("linformer_base", "v5e:4x4", LONG_ROWS),
    Plan("linformer_base", "v5p:2x2x4", LONG_ROWS),
    Plan("transformer_xl_base", "v5e:4x4"),
    Plan("transformer_xl_base", "v5e:4x4", ROWS_8192),
    Plan("transformer_xl_base", "v5p:2x2x4", ROWS_8192),
    Plan("transformer_xl_large", "v5p:2x2x4"),
    Plan("xlnet_base", "v5e:4x4"),
    Plan("xlnet_base", "v5e:4x4", XLNET_8192),
    Plan("xlnet_base", "v5p:2x2x4", XLNET_8192),
    Plan("xlnet_large", "v5p:4x4x4"),
    Plan("sparse_transformer_enwik8", "v5e:4x4"),
    Plan("sparse_transformer_enwik8", "v5e:4x4", BYTES_8192),
    Plan("sparse_transformer_enwik8", "v5p:2x2x4", BYTES_8192),
    Plan("music_transformer", "v5e:2x2"),
    Plan("music_transformer", "v5e:4x4", ROWS_8192),
    Plan("music_transformer", "v5p:2x2x4", ROWS_8192),
    Plan("reformer_enwik8", "v5p:2x2x2"),
    Plan("reformer_enwik8", "v5e:4x4", ROWS_8192),
    Plan("reformer_enwik8", "v5p:2x2x4", ROWS_8192),
    Plan("lstm_lm", "v5e:2x2"),
    Plan("elmo", "v5e:2x4"),
    Plan("elmo_small", "v5e:2x4"),
    Plan("vit_tiny", "v5e:4x4"),
    Plan("vit_small", "v5e:4x4"),
    *(Plan(f"vit_{size}", on) for size in ("base", "large") for on in ("v5e:8x8", "v5p:4x4x4")),
    *(Plan(f"deit_{size}_distilled", "v5e:4x4") for size in ("tiny", "small", "base")),
)
# The rows of docs/plans.md: one usual configuration a line, from small to large.
EXAMPLES = (
    Plan("electra_small", "v5e:2x2"),
    Plan("t5_base", "v5e:4x4"),
    Plan("electra_base", "v5e:4x4"),
    Plan("bert_base", "v4:2x2x4"),
    Plan("bert_large", "v4:2x2x4"),
    Plan("t5_base", "v5p:2x2x4"),
    Plan("bert_large_512", "v5p:2x2x4"),
    Plan("roberta_base", "v5p:4x4x4"),
    Plan("t5_3b", "v5p:4x4x4"),
    Plan("t5_11b", "v5p:4x4x8"),
    Plan("gpt3_175b", "v5p:8x8x8"),
)
