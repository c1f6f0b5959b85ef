"""The protocol buffer of SentencePiece `.model` files, with the fields that this program reads.

Other fields are preserved. The field numbers follow sentencepiece_model.proto. The module of
the sentencepiece package is not imported: version 0.2.3 requires protobuf >= 7.36.1, which
its metadata does not state, and Apache Beam requires protobuf < 7.0.
"""

from typing import Any, cast

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_TYPES = descriptor_pb2.FieldDescriptorProto
_STRING, _BYTES, _FLOAT, _BOOL = (
    _TYPES.TYPE_STRING,
    _TYPES.TYPE_BYTES,
    _TYPES.TYPE_FLOAT,
    _TYPES.TYPE_BOOL,
)

# {message: its enumerations}, and {message: (field, number, type or name of a type here, default)}.
_ENUMS = {
    "SentencePiece": {
        "Type": dict(NORMAL=1, UNKNOWN=2, CONTROL=3, USER_DEFINED=4, UNUSED=5, BYTE=6)
    },
    "TrainerSpec": {"ModelType": dict(UNIGRAM=1, BPE=2, WORD=3, CHAR=4)},
}
_FIELDS = {
    "SentencePiece": [
        ("piece", 1, _STRING, None),
        ("score", 2, _FLOAT, None),
        ("type", 3, "Type", "NORMAL"),
    ],
    "TrainerSpec": [
        ("model_type", 3, "ModelType", "UNIGRAM"),
        ("treat_whitespace_as_suffix", 24, _BOOL, "false"),
        ("byte_fallback", 35, _BOOL, "false"),
    ],
    "NormalizerSpec": [
        ("name", 1, _STRING, None),
        ("precompiled_charsmap", 2, _BYTES, None),
        ("add_dummy_prefix", 3, _BOOL, "true"),
        ("remove_extra_whitespaces", 4, _BOOL, "true"),
        ("escape_whitespaces", 5, _BOOL, "true"),
    ],
    "ModelProto": [
        ("pieces", 1, "SentencePiece", None),
        ("trainer_spec", 2, "TrainerSpec", None),
        ("normalizer_spec", 3, "NormalizerSpec", None),
    ],
}
_REPEATED = {"pieces"}


def _build_file_descriptor() -> descriptor_pb2.FileDescriptorProto:
    """Return the description of the messages above."""
    file = descriptor_pb2.FileDescriptorProto(
        name="sentencepiece_model.proto", package="sentencepiece"
    )
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for enum, values in _ENUMS.get(name, {}).items():
            numbered = [
                descriptor_pb2.EnumValueDescriptorProto(name=key, number=value)
                for key, value in values.items()
            ]
            message.enum_type.add(name=enum, value=numbered)
        for field, number, kind, default in fields:
            label = _TYPES.LABEL_REPEATED if field in _REPEATED else _TYPES.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, label=label, default_value=default)
            if isinstance(kind, int):
                added.type = cast(Any, kind)
            elif kind in _FIELDS:
                added.type, added.type_name = _TYPES.TYPE_MESSAGE, f".sentencepiece.{kind}"
            else:
                added.type, added.type_name = _TYPES.TYPE_ENUM, f".sentencepiece.{name}.{kind}"
    return file


# A separate pool, since the sentencepiece package registers the same names in the default one.
_pool = descriptor_pool.DescriptorPool()
_pool.Add(_build_file_descriptor())
# The classes are built at run time, so a type checker does not know their fields.
ModelProto: Any
SentencePiece: Any
ModelProto, SentencePiece = (
    message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"sentencepiece.{name}"))
    for name in ("ModelProto", "SentencePiece")
)
