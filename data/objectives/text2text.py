"""Text to text: read a text that names its task, write the answer as text (Raffel et al. 2019, section 2.4 and appendix D).

B rows   L inputs   T targets   D examples
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from data.batch_spec import SEQ2SEQ
from data.inspection.causal import answers
from data.inspection.rendering import part_row
from data.objectives.base import Objective
from data.objectives.masking import needs
from data.rows.tables import TokenReader, source_edges

ANSWERS = "answers.jsonl"  # the file of a split with its answers as they stood
ENDS = "ends.bin"  # int32 [D]: tokens of each input up to the end of the answer that stands in it; 0 where none does


@dataclass(frozen=True)
class Text2Text(Objective):
    """Rows of one pair each, of a store that `finetune` makes; both sides end with </s>.

    What an answer is: a text as it stands; the word of a class, where there are `labels`; a score, rounded to multiples of `step`; of
    `questions` the first of the answers that are right; of tags in a `scheme` the entities that they spell (data/examples/tags_as_text.py).
    """

    name: ClassVar[str] = "text2text"
    description: ClassVar[str] = (
        "answers, written as text (inputs of {length}, answers of {target_length})"
    )
    length: int = (
        128  # L: tokens of an input, its </s> included; what is longer is cut, and counted
    )
    target_length: int = 128  # T: of a target; no more is written where texts are compared
    start_of_text: bool = False  # <s> in front of both sides, as BART has it
    columns: tuple[str, ...] = (
        "source",
        "target",
    )  # of the files of examples: the text, or the two texts, and the answer
    prefix: str = ""  # in front of every input, so that it names the task
    names: tuple[
        str, ...
    ] = ()  # of the texts, in front of each, in alphabetical order but of questions, as the paper has them; () for a text alone
    labels: tuple[str, ...] = ()  # the names of the classes in these files
    words: tuple[str, ...] = ()  # what is written for each
    step: float = 0.0
    questions: Literal["", "squad", "squad2"] = (
        ""  # whose rules compare an answer with all that are right; of squad2 some have none
    )
    choices: int = 0  # of each question, whose numbers are the labels: files of data/examples/multiple_choice.py
    scheme: str = ""  # of data/examples/tag_schemes.py, of tagged words
    kinds: tuple[str, ...] = ()  # the types of their entities; of plain tags the tags
    task: str = ""  # one of several: its name
    metrics: tuple[str, ...] = ()  # and what it is measured by
    tasks: tuple[
        "Text2Text", ...
    ] = ()  # several, the sources of the store: only the lengths and the frame are this one's

    def dims(self):
        return {"L": self.length, "T": self.target_length}

    def spec(self):
        return SEQ2SEQ

    def check(self, vocabulary):
        """Raise a ValueError unless these settings make sense with this vocabulary."""
        if min(self.length, self.target_length) < 2 + self.start_of_text:
            raise ValueError(
                f"text2text: length={self.length}, target_length={self.target_length}; a token and what frames it must fit"
            )
        if len(self.columns) != (len(self.names) or 1) + 1 or len(self.words) != len(self.labels):
            raise ValueError(
                f"text2text: columns={self.columns}, names={self.names}, labels={self.labels}, words={self.words}; "
                "there is a name for each column but the last, or one text and no name, and a word for each label"
            )
        if (
            self.step < 0
            or bool(self.labels) + bool(self.step) + bool(self.questions) + bool(self.scheme) > 1
        ):
            told = f"labels={self.labels}, step={self.step}, questions={self.questions!r}, scheme={self.scheme!r}"
            raise ValueError(
                f"text2text: {told}; answers are those of questions, or tags, or labels or scores, whose step is above 0"
            )
        for each in self.tasks:
            each.check(vocabulary)
        needs(self.name, vocabulary, "eos", "pad", *(["bos"] if self.start_of_text else []))

    def examples(self, split, vocabulary):
        """(table of rows, build), where build(row_B, key_B) is the batch of those rows; nothing is drawn."""
        table, read = Text2TextRows(split, self), TokenReader(split.tokens, vocabulary.size)

        def side(which, row_B, width):
            """(ids, bool) [B, width]."""
            start_B1, length_B1 = (
                table.start_D2[row_B, which, None],
                table.length_D2[row_B, which, None],
            )
            column, first = np.arange(width), int(self.start_of_text)
            text_BN = (column >= first) & (column < first + length_B1)
            ids_BN = np.where(
                text_BN, read(np.where(text_BN, start_B1 + column - first, 0)), vocabulary.eos
            )
            if first:
                ids_BN[:, 0] = vocabulary.bos
            used_BN = column <= first + length_B1
            return np.where(used_BN, ids_BN, vocabulary.pad).astype(np.int32), used_BN

        def build(row_B, key_B):
            inputs_BL, read_BL = side(0, row_B, self.length)
            targets_BT, written_BT = side(1, row_B, self.target_length)
            return {
                "encoder_token_ids": inputs_BL,
                "encoder_attention_mask": read_BL,
                "labels": targets_BT,
                "label_weights": written_BT.astype(np.float32),
            }

        return table, build

    def describe_pairs(self) -> dict[str, Any]:
        """Return how pairs of texts are written, as the manifest of their store records it."""
        if self.tasks:
            return {"tasks": [{"task": form.task} | form.describe_pairs() for form in self.tasks]}
        settings = {key: getattr(self, key) for key in ("prefix", "names", "labels", "words", "step")}
        # Manifests that are older than these settings have no entry for them.
        newer = ("questions", "scheme", "kinds")
        return settings | {key: value for key in newer if (value := getattr(self, key))}

    def measure(self, stream, seen, token_id):
        return answers(stream, seen, token_id)

    def render(self, stream, seen, i):
        return part_row(stream, seen, i)


class Text2TextRows:
    """Where the two sides of each example begin in the store, and how long they are, cut at their ends to what a row holds: int64 [D, 2].

    cut: how many examples lose something; too_long: what these are, and how many of them lose the answer that stands in the input.
    """

    def __init__(self, split, objective):
        if not (split.folder and (split.folder / ANSWERS).exists()):
            raise ValueError("its documents have no answers; `finetune` makes a store of pairs")
        starts = np.asarray(split.sentence_starts)
        self.count = (len(starts) - 1) // 2
        self.start_D2, length_D2 = starts[:-1].reshape(-1, 2), np.diff(starts).reshape(-1, 2)
        room = np.array([objective.length, objective.target_length]) - 1 - objective.start_of_text
        self.length_D2 = np.minimum(length_D2, room)
        self.cut = int((length_D2 > room).any(axis=1).sum())
        self.too_long = f"examples that are longer than a row of {objective.length}"
        if (split.folder / ENDS).exists() and (
            lost := int((np.fromfile(split.folder / ENDS, "<i4") > room[0]).sum())
        ):
            self.too_long += f"; of {lost:,} the answer stands in what is cut away"
        self.offsets = source_edges(split)
