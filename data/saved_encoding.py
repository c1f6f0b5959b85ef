"""The meaning of the numbers in the batches of a run, as its workdir has it."""

from etils import epath

from data.images.encoding import FOLDER, ImageEncoding, load_image_encoding
from data.vocabulary.load import Vocabulary, load_vocabulary


def load_encoding(workdir: epath.PathLike) -> Vocabulary | ImageEncoding:
    """Return the vocabulary of a workdir, or the classes of images.

    Raises:
      FileNotFoundError: the workdir has neither.
      ValueError: the files are damaged; the message names one.
    """
    workdir = epath.Path(workdir)
    if (workdir / FOLDER).exists():
        return load_image_encoding(workdir / FOLDER)
    return load_vocabulary(workdir / "vocabulary")
