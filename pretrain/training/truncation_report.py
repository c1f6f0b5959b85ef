"""How much text the rows of a split lack: what is longer than a row, or unknown to the vocabulary.

It is reported at the start of training and when a checkpoint is evaluated.
"""

from data.mixed_stream import MixedStream
from data.pipeline import Stream
from data.store.unknown_tokens import describe_unknown, measure_unknown


def describe_truncation(stream: Stream | MixedStream, where: str = "") -> list[str]:
    """Return a line for each kind of truncation, each with the prefix `where`."""
    return [
        line
        for part_stream in stream.streams.values()
        for line in describe_stream(part_stream, where)
    ]


def describe_stream(stream: Stream, where: str = "") -> list[str]:
    """Return the lines of `describe_truncation` for one objective."""
    table, length = stream.table, stream.objective.length
    lines = []
    if num_skipped := getattr(table, "num_skipped_pairs", 0):
        lines.append(f"skipped: {num_skipped:,} pairs that are longer than a row")
    if num_cut := getattr(table, "num_truncated", 0):
        examples = getattr(
            table, "truncation_report", f"examples that are longer than a row of {length}"
        )
        lines.append(f"truncated: {num_cut:,} {examples}")
    if num_missed := getattr(table, "num_missed_words", 0):
        lines.append(
            f"{num_missed:,} words of these are beyond the end of a row: their tags are neither "
            "learned nor predicted"
        )
    share = measure_unknown(stream.split, stream.vocabulary, is_sample=True)
    lines += describe_unknown(share, "the texts")
    return [where + line for line in lines]
