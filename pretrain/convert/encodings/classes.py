"""The classes of images of a Hugging Face folder."""

from collections.abc import Sequence

from data.images.encoding import ImageEncoding


def make_encoding(names: Sequence[str]) -> ImageEncoding:
    """Return the classes with the names of a config.json.

    Names that occur several times, such as the "crane" of ImageNet, a bird and a machine, get the
    number of their class, all but the first.

    Raises ValueError as `ImageEncoding`.
    """
    seen, classes = set(names), {}
    for number, name in enumerate(names):
        if name in classes:
            name = f"{name} ({number})"
            while name in seen:
                name += "'"
        classes[name] = number
    return ImageEncoding(tuple(classes))
