"""Which pretrained models take a new head, and what of them it stands on."""

from models.config.base import EncoderConfig
from models.config.heads import ENCODERS
from pretrain.families import family_of

NAMES = ", ".join(kind.__name__ for kind in ENCODERS)


def encoder_of(pretrained):
    """Return the configuration of the encoder in a pretrained run, or in a fine-tuned one. Raises ValueError, which names what can be fine-tuned, where it has none."""
    model = getattr(
        pretrained.run.model, "encoder", pretrained.run.model
    )  # of a fine-tuned one too
    if not isinstance(model, EncoderConfig):
        raise ValueError(
            f"{pretrained.workdir} is a run of a {type(model).__name__}; what is fine-tuned is one of {NAMES}, as pretrained"
        )
    return model.as_encoder()


def separators(encoder):
    """Return the number of [SEP]s between two texts."""
    return family_of(encoder).separators
