"""RoBERTa (Liu et al. 2019): BERT's encoder, pretrained by masked language modelling alone.

The paper's other changes belong to the data (`data.objectives.MaskedLm`, rows="sentences"): full
sentences across documents, dynamic masking, a byte-level vocabulary (section 4). The model differs
from BERT in two things: it has no next-sentence head, and its positions begin at another number.
"""

from models.config.roberta import RobertaConfig
from models.layers.encoder import MaskedLanguageModel, PooledEncoder
from models.layers.heads import MaskedLMHead


class RobertaForMaskedLM(MaskedLanguageModel):
    """Masked language modelling.

    Pretraining does not update the pooler; a fine-tuning head reads it.
    """

    config: RobertaConfig

    def setup(self) -> None:
        """Make the encoder and the masked-LM head."""
        c = self.config
        # The authors' code numbers positions from the padding's id + 1: the rows before are unused.
        self.roberta = PooledEncoder(c, self.ops, first_position=c.first_position)
        self.mlm_head = MaskedLMHead(c.epsilon, ops=self.ops)

    @property
    def base_model(self) -> PooledEncoder:
        """The encoder."""
        return self.roberta
