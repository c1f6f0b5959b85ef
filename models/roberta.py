"""RoBERTa (Liu et al. 2019): BERT's encoder, trained on masked words alone, and better by what it reads and for how long.

Rows are full of sentences, across documents; masks are drawn anew whenever a row is read; bytes make the words; no next sentence. All of
this is the reader's (`data.objectives.MaskedLm`, rows="sentences"). Here its sign is what is missing, and where positions begin.

B batch   L length   P masked positions   D width   V vocabulary
"""

from models.config.roberta import RobertaConfig
from models.layers.encoder import MaskedLanguageModel, PooledEncoder
from models.layers.heads import MaskedLMHead


class RobertaForMaskedLM(MaskedLanguageModel):
    """Masked words, and nothing else; pretraining leaves the pooler as it is, and fine-tuning reads a row by it."""

    config: RobertaConfig

    def setup(self):
        c = self.config
        # As the authors' code numbers positions, from behind the padding's id: the rows before that are never read.
        self.roberta = PooledEncoder(c, self.ops, first=c.first_position)
        self.mlm_head = MaskedLMHead(c.epsilon, ops=self.ops)

    @property
    def body(self):
        return self.roberta
