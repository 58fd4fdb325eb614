"""What to do next where a Softmax is no attention, by the step that fails."""

from __future__ import annotations

import re

_UNPROVEN = re.compile(r": ([^:]+) is not known to equal ([^:]+)$")
_NAME = re.compile(r"[A-Za-z_]\w*\b(?!\()")
_SPREAD = re.compile(r"broadcast\((\w+), (\w+)\) is not known|to equal broadcast\((\w+), (\w+)\)$")
_QUANTIZED = "a quantized attention, which no kernel of floats computes: fuse, then quantize"
_ADVICE = (
    # the sentence that a refusal holds, and what helps
    ("but QuantizeLinear", _QUANTIZED),
    ("but DynamicQuantizeLinear", _QUANTIZED),
    ("made by DequantizeLinear", _QUANTIZED),
    ("made by MatMulInteger", _QUANTIZED),
    ("made by QLinearMatMul", _QUANTIZED),
    ("is not known", "export with fixed ranks, or fix the sizes that Reshape computes: --dim"),
    (
        "no product of q and k leads",
        "nothing to do unless it is attention: then move that operator",
    ),
    ("no product reads them", "nothing to do if it is a router or a classifier"),
    ("clipped from above", "remove the upper bound from the model: no kernel has one"),
    ("what it gives is scaled again", "scale q or k instead, before the cap"),
    ("after a mask or another one", "cap the scores once, before the mask"),
    ("it is not positive", "negate q in the model, and make the scale positive"),
    ("after a mask or a softcap", "scale q or k instead, before the mask"),
    ("sums other axes", "nothing to do: the product sums no axis of the Softmax"),
    ("both operands of the product have", "nothing to do: it is no attention over keys"),
    ("not over an axis of one operand", "nothing to do: it is no attention over keys"),
    ("over several axes", "compile with --opset 13, whose Softmax is over one axis"),
    ("scaled before their product", "scale v or the result in the model: the numbers are the same"),
    ("changed before their product", "apply it to the scores, if it is a mask"),
    ("no number", "fill with one number in the model, as -inf"),
    ("only a part of", "cut q or k in the model instead"),
    ("is repeated", "repeat q or k in the model instead"),
    ("they are repeated", "repeat q in the model before its product"),
    ("widens them", "expand q in the model to the size of this tensor"),
    ("more axes than the scores", "reshape it in the model to the axes of the scores"),
    ("a Gemm adds to it", "add it behind a MatMul: then it is a bias of the scores"),
    ("Einsum", "write the product as MatMul, or an equation of two operands without an ellipsis"),
    ("is a vector", "give it an axis of size 1 in the model"),
    ("changes them", "nothing to do: no kernel has this step"),
    ("differ by a factor", "the sizes differ: check the reshapes of the model"),
    ("meets itself", "nothing to do: it reads a diagonal"),
)


def advised(reason: str) -> str:
    """Return a refusal with what helps."""
    unproven = _UNPROVEN.search(reason)
    if unproven is not None and "?" in unproven[0]:
        return (
            f'{reason}; if no input is empty, --assume "sizes >= 1" may name these sizes; '
            "--dim fixes those of inputs"
        )
    fact = unproven and (_spread(reason) or _equality(*unproven.groups()))
    if fact:
        return f'{reason}; if they are equal, compile with --assume "{fact}"'
    result = next((advice for sentence, advice in _ADVICE if sentence in reason), "")
    return f"{reason}; {result}" if result else reason


def _spread(reason: str) -> str:
    """Return the equality of the two sizes that broadcast, if a refusal is about that."""
    match = _SPREAD.search(reason)
    return " == ".join(name for name in match.groups() if name) if match else ""


def _equality(left: str, right: str) -> str:
    """Return the equality for ``--assume``: of the names that one side alone has, or of a name."""
    names = [set(_NAME.findall(text)) for text in (left, right)]
    own, other = names[0] - names[1], names[1] - names[0]
    if len(own) == len(other) == 1:
        return f"{own.pop()} == {other.pop()}"
    if left in own:
        return f"{left} == {right}"
    return f"{right} == {left}" if right in other else ""
