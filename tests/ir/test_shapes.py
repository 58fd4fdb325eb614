"""What is proven of dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gehost import shapes


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (2, 2, True),
        (2, 3, False),
        ("N", "N", True),
        ("N", "M", False),
        (None, None, False),
        (2, None, False),
        (np.int64(2), 2, True),
        (2, np.int64(3), False),
    ],
)
def test_dimensions_are_the_same_where_that_is_known(left: Any, right: Any, same: bool) -> None:
    assert shapes.same_dim(left, right) is same
