"""Checks of rows of a caption and a picture, from the store's offsets."""

from collections.abc import Callable, Sequence

from data.images.captioned_rows import BOTH, WORDS, CaptionedRows
from data.inspection.checks import Check, InspectedBatch, RowStream, check_absence, check_share
from data.inspection.masked import check_masks
from data.inspection.rows import restore_tokens


def check_captioned_rows(
    stream: RowStream, batches: Sequence[InspectedBatch], token_id: Callable[[str], int | None]
) -> list[Check]:
    """Check the tokens, the pictures and the masks of rows of words_and_pictures."""
    table: CaptionedRows = stream.table
    objective, tokens = stream.objective, stream.split.tokens
    cls, sep = stream.vocabulary.cls, stream.vocabulary.sep
    other_text = layout = mislabelled = astray = one_sided = others = num_rows = 0
    both = []
    for inspected in batches:
        batch, row_B = inspected.batch, inspected.row_B
        drawn = table.draw_pairs(
            row_B, inspected.key_B, objective.random_picture, objective.one_sided
        )
        is_both_B = drawn.part_B == BOTH
        num_rows, one_sided = num_rows + len(row_B), one_sided + (~is_both_B).sum()
        others += batch["next_sentence_labels"][is_both_B].sum()
        own_B = drawn.picture[0] == table.starts_D3[row_B, 1]
        mislabelled += (own_B == (batch["next_sentence_labels"] == 1)).sum()
        mislabelled += ((batch["next_sentence_weights"] > 0) != is_both_B).sum()
        for i, row in enumerate(restore_tokens(batch)):
            words, picture = (
                tokens[start[i] : start[i] + length[i]].tolist()
                for start, length in (drawn.words, drawn.picture)
            )
            expected = [cls, *words, sep, *picture, sep]
            token_types = [0] * (len(words) + 2) + [1] * (len(picture) + 1)
            mask = batch["attention_mask"][i]
            other_text += row[mask].tolist() != expected
            layout += batch["token_type_ids"][i].tolist() != token_types + [0] * int((~mask).sum())
            places = batch["masked_positions"][i][batch["label_weights"][i] > 0]
            in_words = places < len(words) + 2
            astray += not is_both_B[i] and (in_words != (drawn.part_B[i] == WORDS)).any()
        chosen = {key: value[is_both_B] for key, value in batch.items()}
        both.append(InspectedBatch(chosen, row_B[is_both_B], inspected.key_B[is_both_B]))
    has_both = num_rows > one_sided
    return [
        *(check_masks(stream, both, token_id) if has_both else []),
        check_absence("rows whose tokens are not the store's", other_text),
        check_absence("rows whose segments are not 0 ... 0 1 ... 1", layout),
        check_absence("labels that are wrong", mislabelled),
        check_absence("masks in the other part", astray),
        check_share("rows with masks in one part", one_sided, num_rows, objective.one_sided),
        *(
            [
                check_share(
                    "pictures of others", others, num_rows - one_sided, objective.random_picture
                )
            ]
            if has_both
            else []
        ),
    ]
