"""What the rows of a part of a token store do not have of its text: told when a run begins, and when a checkpoint is scored."""


def told(stream, where=""):
    """Lines for a person, each of which begins with `where`."""
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
