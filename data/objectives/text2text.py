"""Text to text: read a text that names its task, write the answer as text.

Raffel et al. (2019), section 2.4 and appendix D.

B rows   L input length   T target length   N either of them   D examples
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from data.batch_spec import SEQ2SEQ, Field
from data.objectives.objective import BuildBatch, Objective
from data.objectives.setting_checks import check_special_tokens
from data.rows.tables import Batch, TokenReader, find_source_edges, require_id
from data.store.split import Split
from data.vocabulary.base import Vocabulary

ANSWERS_FILE = "answers.jsonl"  # file of a split with its answers, as the sources have them
# int32 [D]: tokens of each input up to the end of the answer that it contains; 0 without one.
ENDS_FILE = "ends.bin"


@dataclass(frozen=True)
class Text2Text(Objective):
    """Rows of one pair each, from a store that `finetune` writes; both sides end with </s>.

    The answer is a text; with `labels`, the word of a class; with `step`, a score rounded to its
    multiples; with `questions`, the first right answer; with `scheme`, the entities that the tags
    spell (data/examples/tags_as_text.py).
    """

    name: ClassVar[str] = "text2text"
    text_documents: ClassVar[str] = ""
    reads_examples: ClassVar[bool] = True
    description: ClassVar[str] = (
        "answers, written as text (inputs of {length}, answers of {target_length})"
    )
    rendering: ClassVar[str] = "rendering:render_unpadded_row"
    length: int = 128  # L: tokens of an input, with </s>; longer ones are truncated and counted
    target_length: int = 128  # T: tokens of a target, at which generation stops
    start_of_text: bool = False  # both sides begin with <s>, as in BART
    # columns of the files: one text or two, and the answer
    columns: tuple[str, ...] = ("source", "target")
    prefix: str = ""  # text in front of every input, which names the task
    # names in front of the texts, alphabetical except for questions; (): one text
    names: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()  # classes as the files name them
    words: tuple[str, ...] = ()  # what the model writes for each class
    step: float = 0.0  # scores are multiples of this; 0: no scores
    # rules that compare answers; squad2: some have none
    questions: Literal["", "squad", "squad2"] = ""
    choices: int = 0  # choices of each question, labelled by number
    scheme: str = ""  # tagging scheme of the words
    kinds: tuple[str, ...] = ()  # entity types; for plain tags, the tags
    task: str = ""  # name of this task among several
    metrics: tuple[str, ...] = ()  # metrics of this task among several
    # several tasks, one per source of the store; of this objective only lengths and `start_of_text`
    # count
    tasks: tuple["Text2Text", ...] = ()

    def axis_sizes(self) -> dict[str, int]:
        """Return {"L": the input length, "T": the target length}."""
        return {"L": self.length, "T": self.target_length}

    def describe_batch(self) -> dict[str, Field]:
        """Return the fields of a batch."""
        return SEQ2SEQ

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise a ValueError unless these settings are valid with this vocabulary."""
        if min(self.length, self.target_length) < 2 + self.start_of_text:
            raise ValueError(
                f"text2text: length={self.length}, target_length={self.target_length}; "
                f"each must hold a token and {'<s> and ' if self.start_of_text else ''}</s>"
            )
        if len(self.columns) != (len(self.names) or 1) + 1 or len(self.words) != len(self.labels):
            raise ValueError(
                f"text2text: columns={self.columns}, names={self.names}, labels={self.labels}, "
                f"words={self.words}; there is a name for each column but the last, or one text "
                "and no name, and a word for each label"
            )
        if (
            self.step < 0
            or bool(self.labels) + bool(self.step) + bool(self.questions) + bool(self.scheme) > 1
        ):
            raise ValueError(
                f"text2text: labels={self.labels}, step={self.step}, "
                f"questions={self.questions!r}, scheme={self.scheme!r}; set at most one of them, "
                "and step to 0 or more"
            )
        for task in self.tasks:
            task.check_vocabulary(vocabulary)
        check_special_tokens(
            self.name, vocabulary, "eos", "pad", *(["bos"] if self.start_of_text else [])
        )

    def make_rows(self, split: Split, vocabulary: Vocabulary) -> tuple["Text2TextRows", BuildBatch]:
        """Return the table of rows and the function that builds batches; the keys are not used."""
        table, read = Text2TextRows(split, self), TokenReader(split.tokens, vocabulary.size)
        eos, pad = require_id(vocabulary.eos), require_id(vocabulary.pad)

        def build_side(which: int, row_B: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
            """Return (ids, mask) of one side, 0 input or 1 target: [B, N = width]."""
            start_B1 = table.start_D2[row_B, which, None]
            length_B1 = table.length_D2[row_B, which, None]
            column, first = np.arange(width), int(self.start_of_text)
            text_BN = (column >= first) & (column < first + length_B1)
            ids_BN = np.where(text_BN, read(np.where(text_BN, start_B1 + column - first, 0)), eos)
            if first:
                ids_BN[:, 0] = vocabulary.bos
            used_BN = column <= first + length_B1
            return np.where(used_BN, ids_BN, pad).astype(np.int32), used_BN

        def build_batch(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
            input_BL, input_mask_BL = build_side(0, row_B, self.length)
            label_BT, label_mask_BT = build_side(1, row_B, self.target_length)
            return {
                "encoder_token_ids": input_BL,
                "encoder_attention_mask": input_mask_BL,
                "labels": label_BT,
                "label_weights": label_mask_BT.astype(np.float32),
            }

        return table, build_batch

    def describe_pairs(self) -> dict[str, Any]:
        """Return how pairs of texts are written, as the manifest of their store records it."""
        if self.tasks:
            return {"tasks": [{"task": task.task} | task.describe_pairs() for task in self.tasks]}
        settings = {
            key: getattr(self, key) for key in ("prefix", "names", "labels", "words", "step")
        }
        # Manifests that are older than these settings have no entry for them.
        newer = ("questions", "scheme", "kinds")
        return settings | {key: value for key in newer if (value := getattr(self, key))}


class Text2TextRows:
    """The two sides of each example, cut at their ends to what a row holds.

    start_D2, length_D2: int64 [D, 2], first token and number of tokens of each side.
    num_truncated: number of examples that lose tokens.
    truncation_report: what `num_truncated` counts, and how many of these inputs lose the answer
      that they contain.
    """

    def __init__(self, split: Split, objective: Text2Text) -> None:
        if not (split.folder and (split.folder / ANSWERS_FILE).exists()):
            raise ValueError("its documents have no answers; `finetune` makes a store of pairs")
        starts = np.asarray(split.sentence_starts)
        self.count = (len(starts) - 1) // 2
        self.start_D2, length_D2 = starts[:-1].reshape(-1, 2), np.diff(starts).reshape(-1, 2)
        room = np.array([objective.length, objective.target_length]) - 1 - objective.start_of_text
        self.length_D2 = np.minimum(length_D2, room)
        self.num_truncated = int((length_D2 > room).any(axis=1).sum())
        self.truncation_report = f"examples that are longer than a row of {objective.length}"
        if (split.folder / ENDS_FILE).exists() and (
            lost := int((np.fromfile(split.folder / ENDS_FILE, "<i4") > room[0]).sum())
        ):
            self.truncation_report += f"; {lost:,} of them lose the answer"
        self.offsets = find_source_edges(split)
