"""Objectives turn rows of token ids into batches; one file each, and this table names them."""

from data.objectives.answer_span import AnswerSpan
from data.objectives.causal_lm import CausalLm
from data.objectives.classification import Classification
from data.objectives.denoising import Denoising
from data.objectives.distillation import Distillation
from data.objectives.masked_lm import MaskedLm
from data.objectives.multiple_choice import MultipleChoice
from data.objectives.prefix_lm import PrefixLm
from data.objectives.regression import Regression
from data.objectives.replaced_token import ReplacedToken
from data.objectives.sentence_order import SentenceOrder
from data.objectives.sentence_pair import SentencePair
from data.objectives.seq2seq import Seq2Seq
from data.objectives.span_corruption import SpanCorruption
from data.objectives.tagging import Tagging
from data.objectives.text2text import Text2Text

OBJECTIVES = {
    objective.name: objective
    for objective in (
        *(
            MaskedLm,
            SentencePair,
            SpanCorruption,
            SentenceOrder,
            CausalLm,
            PrefixLm,
            Seq2Seq,
            ReplacedToken,
            Denoising,
            Distillation,
        ),
        *(Classification, Regression),
        *(Tagging, MultipleChoice, AnswerSpan),
        Text2Text,
    )
}
