"""Which pretrained models take a new head, and what of them it stands on."""

import dataclasses

from models.config import AlbertConfig, BertConfig, DistilBertConfig, ElectraConfig, RobertaConfig

NAMES = "BERT, RoBERTa, ALBERT, ELECTRA and DistilBERT"


def encoder_of(pretrained):
    """The configuration of the encoder in a pretrained run, or in a fine-tuned one. Raises ValueError, which tells what can be fine-tuned, where it has none."""
    model = getattr(
        pretrained.run.model, "encoder", pretrained.run.model
    )  # of a fine-tuned one too
    if not isinstance(
        model, (BertConfig, RobertaConfig, AlbertConfig, ElectraConfig, DistilBertConfig)
    ):
        raise ValueError(
            f"{pretrained.workdir} is a run of a {type(model).__name__}; what is fine-tuned is {NAMES}, as pretrained"
        )
    return (
        dataclasses.replace(model, teacher_depth=None)
        if isinstance(model, DistilBertConfig)
        else model
    )


def separators(encoder):
    """[SEP]s between two texts."""
    return 2 if isinstance(encoder, RobertaConfig) else 1
