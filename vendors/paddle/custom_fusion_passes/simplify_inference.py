"""Remove operators that have no effect in inference.

``x → Transpose p → Transpose q   ==>   x``, where q undoes p
``x → Unsqueeze a → Squeeze a     ==>   x``
``x → Dropout                     ==>   x``, unless it trains
"""

from __future__ import annotations

from gehost_register_pass import ParamAttr, RegisterPass, native, op


@native
def undoes(first: list[int], second: list[int]) -> bool:
    """Whether one permutation of axes is the inverse of the other."""
    return len(first) == len(second) and [first[axis] for axis in second] == list(range(len(first)))


@RegisterPass(input_specs={"training": ParamAttr()}, min_opset=7)
def simplify_inference():
    """Forward x past operators that together, or in inference, hand it on.

    Keeps: dtype and shape, x being the result.
    Refuses:
        no match: another reader of an inner tensor; a Dropout whose mask is read;
        ``condition``: permutations of which the second does not undo the first; axes that differ; a
        Dropout that trains; ``unknown``: a Transpose without perm, which reverses axes of a number
        that the rule does not know; ``weight``: a Dropout of which only the caller knows whether it
        trains.
    Source: ONNX Transpose-1, Unsqueeze-1, Squeeze-1, Dropout-7 (before opset 7 it trains unless
    ``is_test`` is set).
    """

    def transposes(x):
        first = op.Transpose(x)
        second = op.Transpose(first)
        undoes(first.Attr("perm"), second.Attr("perm")).Holds()
        return second

    def unsqueezed(x):
        first = op.Unsqueeze(x)
        second = op.Squeeze(first)
        second.Attr("axes").EQ(first.Attr("axes"))
        return second

    def dropout(x):
        # the mask is an inner tensor: a match has no other reader of it
        return op.Dropout(x, num_outputs=2).Output("output")

    def dropout_told(x, training):
        training.Attr("value")[0].EQ(0)
        dropped = op.Dropout(x, training_mode=training, num_outputs=2)  # at any ratio
        return dropped.Output("output")

    def replace(x):
        return x

    return [(pattern, replace) for pattern in (transposes, unsqueezed, dropout, dropout_told)]
