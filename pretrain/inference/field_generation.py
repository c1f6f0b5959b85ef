"""A field of an article, generated from its other fields (Zellers et al. 2019, section 3.2).

The prompt has the given fields in the canonical order and the token that begins the field to
generate. The token that ends the field ends the generation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from data.corpus.json_lines import parse_object
from data.corpus.record_texts import LIST_SEPARATOR
from data.vocabulary.field_tokens import find_fields
from pretrain.inference.batching import name_places
from pretrain.inference.text_generation import ContinuationWriter, Places
from pretrain.workdir.trained import Trained

Article = dict[str, str]  # {field: text}, in the canonical order


def writes_fields(trained: Trained) -> bool:
    """Return whether a model was trained on articles of fields."""
    return bool(trained.run.data.objective.body)


class ArticleReader:
    """Reads articles: calling it with a record and its place returns the article."""

    def __init__(self, trained: Trained) -> None:
        """Take the fields of the model's vocabulary."""
        self.names = tuple(find_fields(trained.vocabulary))

    def __call__(self, record: Mapping[str, Any], place: str | None) -> Article:
        """Return the fields of a record, or of the JSON object that is its text.

        Raises ValueError for a field that is no text, or that the model does not know.
        """
        where = place or "the article"
        if not self.names or record.keys().isdisjoint(self.names):
            if not isinstance(record.get("text"), str):
                raise ValueError(f"{where}: none of the model's fields: {', '.join(self.names)}")
            record = parse_object(record["text"], where)
            if unknown := [name for name in record if name not in self.names]:
                raise ValueError(
                    f"{where}: field {unknown[0]!r} is none of the model's: {', '.join(self.names)}"
                )
        article = {}
        for name in self.names:
            value = record.get(name)
            parts = value if isinstance(value, list) else [] if value is None else [value]
            if not all(isinstance(part, str) for part in parts):
                raise ValueError(
                    f"{where}: field {name!r} is {value!r:.80}; a field is a text, a list of "
                    "texts, or left out"
                )
            if text := LIST_SEPARATOR.join(parts).strip():
                article[name] = text
        return article


class FieldWriter(ContinuationWriter):
    """Generates a field: calling it with articles returns the field's text for each of them."""

    def __init__(
        self, trained: Trained, *args: Any, field: str | None = None, **options: Any
    ) -> None:
        """Build the model.

        Args:
          field: the field to generate; None: the body.
        """
        super().__init__(trained, *args, **options)
        self.fields = find_fields(self.vocabulary)
        objective: Any = trained.run.data.objective
        self.field = field or objective.body
        if self.field not in self.fields:
            raise ValueError(
                f"--field {self.field}: the model's fields are {', '.join(self.fields)}"
            )
        self.end = self.fields[self.field].end

    def build_prompt(self, article: Article) -> list[int]:
        """Return the ids of the fields of an article, and of what begins the field to generate."""
        row = []
        for name, tokens in self.fields.items():
            if name in article and name != self.field:
                row += [tokens.begin, *self.vocabulary.encode(article[name]), tokens.end]
        return [*row, self.fields[self.field].begin]

    def __call__(
        self, texts: Sequence[Any], places: Places, first: int = 0
    ) -> list[dict[str, Any]]:
        """Return {"field": its name, "written": its text} for each article.

        A field that an article has is generated from the others, as if the article lacked it.
        """
        rows = [self.build_prompt(article) for article in texts]
        for place, row in zip(name_places(places), rows):
            if self.max_length is not None and len(row) + self.length > self.max_length:
                raise ValueError(
                    f"{place}: the other fields have {len(row)} tokens and {self.length} more are "
                    f"to write (--length), the model reads at most {self.max_length}"
                )
        special = self.vocabulary.special
        return [
            {"field": self.field, "written": self.decode_text([i for i in ids if not special[i]])}
            for ids in self.generate_ids(rows, first)
        ]


def format_article(article: Article, result: dict[str, Any]) -> str:
    """Return an article and the field that was generated, formatted for the terminal."""
    given = [f"{name}: {text}" for name, text in article.items() if name != result["field"]]
    return "\n".join([*given, f"  {result['field']}: {result['written']}"]) + "\n"
