"""The classes of images, saved and read again, and the files that are none."""

import json

import pytest

from data.images.encoding import FILE, ImageEncoding, load_image_encoding
from data.saved_encoding import load_encoding


def test_saved_classes_are_read_again(tmp_path):
    """Equal classes have equal fingerprints; another order is another encoding."""
    encoding = ImageEncoding(("cat", "dog", "Vögel"))
    (folder,) = encoding.artefacts
    (tmp_path / folder).mkdir()
    encoding.artefacts[folder](str(tmp_path / folder))
    found = load_encoding(tmp_path)
    assert found == encoding
    assert found.fingerprint == encoding.fingerprint
    assert found.fingerprint != ImageEncoding(("dog", "cat", "Vögel")).fingerprint


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "expected"),
        ('{"classes": "abc"}', "expected"),
        ('{"classes": [1, 2]}', "expected"),
        ("{", "classes.json"),
        (json.dumps({"classes": ["a", "b", "a"]}), "two classes are named 'a'"),
        (json.dumps({"classes": [""]}), "named ''"),
        ('{"classes": ["caf\\udce9"]}', "'caf.udce9', which is not UTF-8: rename its folder"),
        (json.dumps({"classes": ["a" * 201]}), "1 to 200"),
        (json.dumps({"classes": [str(i) for i in range(100_001)]}), "100,001 classes"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, content, message):
    """Each is one ValueError with the file."""
    (tmp_path / FILE).write_text(content)
    with pytest.raises(ValueError, match=message) as error:
        load_image_encoding(tmp_path)
    assert FILE in str(error.value)
