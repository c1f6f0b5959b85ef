"""The interface of pretraining and fine-tuning objectives.

An objective is a frozen dataclass whose fields are its configuration; each file of this folder
holds one. A new file is found by the `name` of its class, as is its loss,
`pretrain/training/losses/NAME.py` (docs/adding_an_objective.md).
"""

import abc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from data.batch_spec import Field
from data.members import import_member
from data.rows.tables import Batch, RowTable
from data.store.split import Split
from data.vocabulary.base import Vocabulary

if TYPE_CHECKING:
    from data.inspection.checks import Check, InspectedBatch, RowStream

# (row_B, key_B) -> batch of the rows; where the mask rate is ramped, (row_B, key_B, rate_B)
BuildBatch = Callable[..., Batch]
TokenId = Callable[[str], int | None]  # piece -> its id in a tokenizer


class ObjectiveDefaults:
    """What general parts ask of an objective or a mixture, with the answers of most.

    An objective overrides a member by a field, where its configuration decides, or by a ClassVar.
    The comments are the table of docs/adding_an_objective.md.
    """

    reads_examples: ClassVar[bool] = False  # rows are labelled examples
    reads_images: ClassVar[bool] = False  # rows are images, from `make_image_rows`
    reads_captions: ClassVar[bool] = False  # rows are texts with pictures
    can_spell: ClassVar[bool] = False  # `characters` is a setting
    compares_rows: ClassVar[bool] = False  # the loss of a row depends on all rows of the batch
    rows: Any = ""  # how texts become rows, where there is a choice
    length: Any = None  # tokens of a row, where rows have a length
    reverse_complement: bool = False  # half of the training rows are the other strand of DNA
    repeats: int = 1  # times in a row that a row is read, with other draws
    dupe_factor: int = 0  # versions of a row; 0 draws a new one in each epoch
    order: Any = "shuffled"  # "lanes": row i of a batch continues row i of the batch before
    mask_rate: Any = None  # share of a row that is masked, where a setting says so
    mask_ramp: Any = None  # `data.rows.ramp.Ramp` of the mask rate over the steps; None: constant
    draw_rates: Any = None  # (keys [N] of batches, places [B] in [0, 1)) -> their mask rates [N, B]
    zero_state_rate: float = 0.0  # probability that a row on lanes begins with a state of zeros
    characters: int = 0  # characters of a word that the model reads; 0: it reads ids
    shuffled: bool = False  # sentences are shuffled, so the store must know their ends
    patch_size: Any = None  # [pixels] side of the patches that the model predicts
    columns: tuple[str, ...] = ()  # columns of an example
    tasks: tuple[Any, ...] = ()  # objectives of a model that is fine-tuned on several tasks
    scheme: str = ""  # tagging scheme, where a model writes tags
    questions: Any = ""  # "squad" or "squad2", where a model writes answers
    mode: str = ""  # token at the beginning of each text
    body: str = ""  # the field that a model of articles writes

    def describe_pairs(self) -> dict[str, Any] | None:
        """Return the settings with which a store of pairs of texts was written; None: no pairs."""
        return None

    def list_image_options(self) -> dict[str, Any]:
        """Return the options of an export's image processor; none without images."""
        return {}


class Objective(ObjectiveDefaults, abc.ABC):
    """An objective: the rows of a split, the batches built from them, and how a report shows them.

    The comments are the table of docs/adding_an_objective.md.
    """

    name: ClassVar[str]  # its name in commands and configurations; also its loss's module
    description: ClassVar[str]  # its description in a model card, with its fields in braces
    # objective whose batches have the same keys, and whose models it can train
    trains_as: ClassVar[str] = ""
    # function of data/inspection that checks its batches, as `module:function`; "": none
    checks: ClassVar[str] = ""
    # function of data/inspection that shows a row, as `module:function`
    rendering: ClassVar[str] = "rendering:render_tokens"
    gaps: ClassVar[str] = ""  # key of `data.inspection.gaps.READERS`, for `samples.jsonl`
    joins_texts: ClassVar[bool] = False  # rows are one stream of texts, each after an end of text
    unit: ClassVar[str] = "tokens"  # what a run's throughput counts
    # how `evaluate --text` reads a plain text, a --document of `prepare`; "": it cannot
    text_documents: ClassVar[str] = "file"
    # tokens whose loss is a fair sample of a text's: "all"; "known" without unknown ones; "" none
    scored_tokens: ClassVar[str] = ""
    masks_any_share: ClassVar[bool] = False  # `predict` fills masks in steps, `score` has a bound

    @abc.abstractmethod
    def axis_sizes(self) -> dict[str, int]:
        """Return {letter: size} of the axes in `Field.dims`, except B; it always has L."""

    def count_positions(self) -> int:
        """Return the number of `unit` of a row, of inputs and of targets, padding included."""
        sizes = self.axis_sizes()
        return sizes["L"] + sizes.get("T", 0)

    @abc.abstractmethod
    def describe_batch(self) -> dict[str, Field]:
        """Return {key: Field} of a batch, in order."""

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise a ValueError unless these settings are valid with this vocabulary."""

    @abc.abstractmethod
    def make_rows(self, split: Split, vocabulary: Vocabulary) -> tuple[RowTable, BuildBatch]:
        """Return the table of rows of a split and the function that builds batches of them.

        Returns:
          table: the rows, numbered from 0; `table.count` is their number.
          build_batch: (row_B, key_B) -> batch of those rows; the uint64 keys decide all draws.
        """

    def drop_repeats(self, table: Any, batch: Batch, row_B: np.ndarray, key_B: np.ndarray) -> None:
        """Set to 0 the weights of targets that another row has as well; evaluation calls this.

        Rows of `WindowRows` share text: `table.mark_own_tokens(row_B)` finds what is a row's alone.

        Args:
          table: the table of `make_rows`.
          batch: the batch that `build_batch(row_B, key_B)` has returned; it is changed in place.
          row_B: numbers of its rows.
          key_B: the keys of its draws.
        """

    def measure_batches(
        self, stream: "RowStream", batches: "Sequence[InspectedBatch]", token_id: TokenId
    ) -> "list[Check]":
        """Return checks of this objective's guarantees, measured on `batches`."""
        check = self.checks and import_member(f"data.inspection.{self.checks}")
        return check(stream, batches, token_id) if check else []

    def render_row(
        self, stream: "RowStream", inspected: "InspectedBatch", i: int
    ) -> dict[str, Any]:
        """Return row i of a batch in readable form, as data/inspection/rendering.py describes."""
        return import_member(f"data.inspection.{self.rendering}")(stream, inspected, i)
