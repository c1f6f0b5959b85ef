"""Each property that all families share has a file here; a new family is tested without being
named.
"""

import pytest

from tests.models.promises.cases import CASES, make_case


@pytest.fixture
def case(request, make, tiny_configs):
    """Return the case that `cases.for_cases` parametrises a test with."""
    family, _ = CASES[request.param]
    return make_case(request.param, make, tiny_configs[family])
