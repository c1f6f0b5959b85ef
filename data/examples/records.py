"""Texts and words of a record that a person wrote, under the names that a task gives them."""

from data.examples.tagging import words_of


def read_texts(record, place, columns):
    """The text, or the pair, of a record: by the columns that the model was fine-tuned from, or as `text` and `text2`.

    columns: names of the texts. Raises ValueError, which names the place, where they are not there.
    """
    if (
        record.keys() == {"text"}
        and len(columns) == 2
        and isinstance(record["text"], str)
        and record["text"].count("\t") == 1
    ):
        return tuple(record["text"].split("\t"))  # a line of text
    for names in (columns, ("text", "text2")[: len(columns)]):
        if all(isinstance(record.get(name), str) for name in names):
            return tuple(record[name] for name in names)
    raise ValueError(
        f"{place}: expected {' and '.join(columns)}, each a text; this has {', '.join(map(repr, record))}"
    )


def read_words(record, place, names):
    """The words of a record, under the first of these names that is there, or of its `text`, where they stand between white space.

    Raises ValueError, which names the place, where there are none.
    """
    for name in names:
        if name in record:
            return words_of(record[name], f"{place}: {name!r}")
    text = record.get("text")
    if not isinstance(text, str):
        raise ValueError(
            f"{place}: expected {' or '.join(dict.fromkeys(names))}, a list of words, or text; this has {', '.join(map(repr, record))}"
        )
    return words_of(text.split(), place)
