"""What to do next where a Softmax is no attention, by the step that fails."""

from __future__ import annotations

import re

from gehost import Model
from gehost import sizes as algebra

_UNPROVEN = re.compile(r": ([^:]+) is not known to equal ([^:]+)$")
_NAME = re.compile(r"[A-Za-z_]\w*\b(?!\()")
_UNNAMED = re.compile(r"\?\d+")
_NOT_EMPTY = "sizes >= 1"
_QUANTIZED = "a quantized attention, which no kernel of floats computes: fuse, then quantize"
_ADVICE = (
    # the sentence that a refusal holds, and what helps
    ("but QuantizeLinear", _QUANTIZED),
    ("but DynamicQuantizeLinear", _QUANTIZED),
    ("made by DequantizeLinear", _QUANTIZED),
    ("made by MatMulInteger", _QUANTIZED),
    ("made by QLinearMatMul", _QUANTIZED),
    ("is not known to equal", "fix the sizes that differ: --dim"),
    (
        "made by Reshape, is not known",
        "give Reshape a constant shape, or fix the length of its second input: --dim",
    ),
    (
        "is not known",
        "no option fixes a rank: check that the model runs, and export it otherwise (dynamo=True)",
    ),
    (
        "no product of q and k leads",
        "nothing to do unless it is attention: then move that operator",
    ),
    (
        'scores: Concat "',
        "nothing to do: no kernel takes a sink; as one more key, with the value 0, it is attention",
    ),
    ('scores: ScatterND "', "export with dynamo=True, or add a bias that is 0 elsewhere"),
    (
        "no product reads them",
        "nothing to do if it is a router or a classifier; in attention, mask the scores instead",
    ),
    ("clipped from above", "remove the Clip from the model: no kernel has bounds"),
    ("what it gives is scaled again", "scale q or k instead, before the cap"),
    ("after a mask or another one", "cap the scores once, before the mask"),
    ("it is not positive", "negate q in the model, and make the scale positive"),
    ("after a mask or a softcap", "scale q or k instead, before the mask"),
    (
        "sums other axes",
        "nothing to do if that mixes heads; in attention, set the axis of the Softmax to the keys'",
    ),
    ("both operands of the product have", "nothing to do: it is no attention over keys"),
    ("not over an axis of one operand", "nothing to do: it is no attention over keys"),
    ("over several axes", "nothing to do: below opset 13 it normalizes these together"),
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


def advised(reason: str, model: Model, *, tries: bool = False) -> str:
    """Return a refusal with the origins of its unnamed sizes, and what helps.

    ``tries``: also facts that a trial must prove, milliseconds each: not in a compile.
    """
    unproven = _UNPROVEN.search(reason)
    if unproven is not None and "?" in unproven[0]:
        return f"{reason}{_origins(unproven[0], model.sizes)}; {_named_by(model)}"
    fact = algebra.fact_for(model.sizes, *unproven.groups()) if unproven and tries else ""
    fact = fact or (unproven and _equality(*unproven.groups()))
    if fact:
        return f'{reason}; if that holds, compile with --assume "{fact}"'
    result = next((advice for sentence, advice in _ADVICE if sentence in reason), "")
    return f"{reason}; {result}" if result else reason


def _origins(text: str, scope: algebra.Scope) -> str:
    names = dict.fromkeys(_UNNAMED.findall(text))
    return ", where " + " and ".join(
        f"{name} is {scope.described(scope.parse(name))}" for name in names
    )


def _named_by(model: Model) -> str:
    """Return what may name sizes that inference could not."""
    options: list[str] = []
    if _NOT_EMPTY not in model.facts:
        options.append(f'if no input is empty, --assume "{_NOT_EMPTY}" may name these sizes')
    if any(isinstance(dim, str) for value in model.graph.inputs for dim in value.shape or ()):
        options.append("--dim fixes those of inputs")
    return "; ".join(options) or "nothing to do: only a run knows these sizes"


def _equality(left: str, right: str) -> str:
    """Return the equality for ``--assume`` that the texts of two sizes show.

    Of parts of a function, as a minimum, one may help that does not make them one by itself.
    """
    names = [set(_NAME.findall(text)) for text in (left, right)]
    own, other = names[0] - names[1], names[1] - names[0]
    if len(own) == len(other) == 1:
        (a,), (b,) = own, other
        terms = re.sub(rf"\b{re.escape(a)}\b", b, left).split(" + ")
        if "(" in left + right or sorted(terms) == sorted(right.split(" + ")):
            return f"{a} == {b}"
    if left in own:
        return f"{left} == {right}"
    return f"{right} == {left}" if right in other else ""
