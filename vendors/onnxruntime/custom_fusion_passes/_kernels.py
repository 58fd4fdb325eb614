"""Sizes that ONNX Runtime's kernels of attention do not take, by operator.

Found by running them (1.31.1, CPU). MultiHeadAttention and com.microsoft::Attention take a batch or
length of 0; Attention of opset 23 refuses it; GroupQueryAttention refuses length 0, and a batch
of 0 ends the process (division by 0). MultiHeadAttention refuses keys and values [B, N, T, ·] of
different head sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gehost import PassOption

from ._shapes import Size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gehost_semantic import Extent

NO_EMPTY_INPUTS = PassOption(
    "no_empty_inputs",
    bool,
    False,  # noqa: FBT003 - the default
    "batch, lengths and images have sizes of at least 1",
    assumption=True,
)


def dim_of(size: Extent) -> Size:
    """Return a size of a description as shapes have it."""
    return size if isinstance(size, int) else str(size)


def empty_sizes(sizes: Mapping[str, Size], *, assumed: bool) -> str:
    """Return why a kernel that takes no empty tensor is refused, or "".

    Args:
        sizes: by what they are.
        assumed: those that may be 0 are not.
    """
    for name, size in sizes.items():
        if size == 0:
            return f"{name}: it is 0, and the kernel takes none such"
    may_be = [f"{name} {size}" for name, size in sizes.items() if not isinstance(size, int)]
    if assumed or not may_be:
        return ""
    return (
        f"empty: {', '.join(may_be)} may be 0, and the kernel takes none such; "
        "--assume no-empty-inputs takes it for granted, --dim fixes a size"
    )
