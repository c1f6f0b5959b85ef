"""What the rows of a part of a token store do not have of its text: told when a run begins, and when a checkpoint is scored."""

from data.mixed_stream import split_stream


def describe(stream, where=""):
    """Return lines for a person, each of which begins with `where`; of a mixture those of its parts."""
    return [line for each in split_stream(stream).values() for line in told(each, where)]


def told(stream, where=""):
    table, length = stream.table, getattr(stream.objective, "length", None)
    lines = []
    if left_out := getattr(table, "left_out", 0):
        lines.append(f"left out: {left_out:,} pairs that are longer than a row")
    if cut := getattr(table, "cut", 0):
        lines.append(
            f"cut: {cut:,} {getattr(table, 'too_long', f'examples that are longer than a row of {length}')}"
        )
    if missed := getattr(table, "missed", 0):
        lines.append(
            f"of these, {missed:,} words stand behind the end of a row: their tags are neither learned nor told"
        )
    return [where + line for line in lines]
