"""Each promise that all families make has a file here; a family that is added is held to it without
being named.
"""

import pytest

from tests.models.promises.cases import CASES, make_case


@pytest.fixture
def case(request, make, tiny_configs):
    """The case that a test is parametrised with by `cases.for_cases`."""
    family, _ = CASES[request.param]
    return make_case(request.param, make, tiny_configs[family])
