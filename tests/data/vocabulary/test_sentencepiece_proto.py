import pytest

from data.vocabulary.sentencepiece_proto import ModelProto, SentencePiece


@pytest.fixture(scope="module")
def theirs():
    """Return the module that the library contains."""
    try:
        from sentencepiece import sentencepiece_model_pb2
    except Exception as error:  # protobuf's VersionError has no public class
        pytest.skip(f"sentencepiece's own module cannot be imported with this protobuf: {error}")
    return sentencepiece_model_pb2.ModelProto


def same_fields(ours, theirs):
    """Every field has the number, type and default of the library's."""
    for field in ours.fields:
        other = theirs.fields_by_name[field.name]
        assert (field.number, field.type, field.default_value) == (
            other.number,
            other.type,
            other.default_value,
        ), field.name
        if field.message_type:
            same_fields(field.message_type, other.message_type)
        if field.enum_type:
            values = [
                {value.name: value.number for value in enum.values}
                for enum in (field.enum_type, other.enum_type)
            ]
            assert values[0] == values[1]


def test_it_is_the_protocol_buffer_of_the_library(theirs, vocabulary, t5_vocabulary):
    same_fields(ModelProto.DESCRIPTOR, theirs.DESCRIPTOR)
    for model in (vocabulary.model_bytes, t5_vocabulary.model_bytes):
        parsed = theirs.FromString(model)
        assert parsed.SerializeToString(deterministic=True) == model
        assert [(p.piece, p.score, p.type) for p in ModelProto.FromString(model).pieces] == [
            (p.piece, p.score, p.type) for p in parsed.pieces
        ]


def test_fields_that_are_not_read_are_preserved(vocabulary):
    parsed = ModelProto.FromString(vocabulary.model_bytes)
    assert parsed.SerializeToString(deterministic=True) == vocabulary.model_bytes
    kinds = {piece.piece: piece.type for piece in parsed.pieces}
    assert (kinds["[UNK]"], kinds["[MASK]"], kinds["▁"]) == (
        SentencePiece.UNKNOWN,
        SentencePiece.CONTROL,
        SentencePiece.NORMAL,
    )
    assert (
        parsed.trainer_spec.model_type == parsed.trainer_spec.UNIGRAM
        and parsed.normalizer_spec.name == "nmt_nfkc"
    )
    assert (
        parsed.normalizer_spec.escape_whitespaces
        and len(parsed.normalizer_spec.precompiled_charsmap) > 100_000
    )
