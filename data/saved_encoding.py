"""The meaning of the numbers in the batches of a run, as its workdir has it."""

from etils import epath

from data.images import codebook
from data.images.captioned_vocabulary import load_captioned_vocabulary
from data.images.encoding import FOLDER, ImageEncoding, load_image_encoding
from data.vocabulary.load import Vocabulary, load_vocabulary


def load_encoding(workdir: epath.PathLike) -> Vocabulary | ImageEncoding:
    """Return the vocabulary of a workdir, which may have visual tokens, or the classes of images.

    Raises:
      FileNotFoundError: the workdir has neither.
      ValueError: the files are damaged; the message names one.
    """
    workdir = epath.Path(workdir)
    if (workdir / FOLDER).exists():
        return load_image_encoding(workdir / FOLDER)
    if (workdir / codebook.FOLDER).exists():
        return load_captioned_vocabulary(workdir)
    return load_vocabulary(workdir / "vocabulary")
