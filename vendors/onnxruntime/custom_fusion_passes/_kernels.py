"""Sizes that ONNX Runtime's kernels of attention do not take, by operator.

Found by running them (1.31.1, CPU). MultiHeadAttention and com.microsoft::Attention take a batch or
length of 0; Attention of opset 23 refuses it; GroupQueryAttention refuses length 0, and a batch
of 0 ends the process (division by 0). MultiHeadAttention refuses keys and values [B, N, T, ·] of
different head sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gehost import PassOption

from ._shapes import Size, same, shape_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gehost import Value

NO_EMPTY_INPUTS = PassOption(
    "no_empty_inputs",
    bool,
    False,  # noqa: FBT003 - the default
    "batch and lengths of attention are at least 1",
    assumption=True,
)


def takes_heads_apart(k: Value, v: Value) -> bool:
    """Whether MultiHeadAttention takes these k and v as [B, N, T, H]."""
    k_dims, v_dims = shape_of(k), shape_of(v)
    return k_dims is not None and v_dims is not None and same(k_dims[-1], v_dims[-1])


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
