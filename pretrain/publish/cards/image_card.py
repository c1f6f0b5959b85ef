"""What a model card says of a model of images."""

from data.images.encoding import ImageEncoding
from models.config.base import ImageConfig
from pretrain.publish.cards.card_texts import format_code

SHOWN_CLASSES = 20
LIMITS = (
    "It predicts one of its classes for every image, also for an image of none of them.",
    "It repeats what its images and labels show, errors and prejudices included. Nothing but the "
    "figures above was measured. No licence is stated for the weights; check the licence of the "
    "images.",
)


def list_loading_lines(config: ImageConfig, auto_class: str, folder: str) -> list[str]:
    """Return lines of Python that load an export and use it.

    auto_class: the class of transformers that opens it.
    folder: its path, as the inside of a Python string.
    """
    mode = "RGB" if config.channels == 3 else "L"
    return [
        "from PIL import Image",
        f"from transformers import AutoImageProcessor, {auto_class}",
        f'model = {auto_class}.from_pretrained("{folder}")',
        f'processor = AutoImageProcessor.from_pretrained("{folder}")',
        f'image = Image.open("image.png").convert("{mode}")',
        'logits = model(**processor(image, return_tensors="pt")).logits',
        "print(model.config.id2label[logits.argmax().item()])",
    ]


def describe_classes(config: ImageConfig, encoding: ImageEncoding) -> str:
    """Return the classes: their number, and the names of the first ones."""
    names = encoding.classes
    shown = ", ".join(map(format_code, names[:SHOWN_CLASSES]))
    more = f" and {len(names) - SHOWN_CLASSES:,} more" if len(names) > SHOWN_CLASSES else ""
    return f"{config.classes:,}: {shown}{more}" if names else f"{config.classes:,}, without names"
