"""Reads the pretty forms of StableHLO, CHLO, func and Shardy.

Most operations have one form: operands, words and ``name = value`` with commas between them, a
dictionary, and types. Each of the others has a function in ``_FORMS``. The attributes become those
of the generic form.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gehost_mlir.attributes import dictionary
from gehost_mlir.operations import Operation, OperationReader
from gehost_mlir.source import OPERATION, SSA, STRING, balanced, spaced

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RANGE = re.compile(r"([0-9]+)\s*:\s*([0-9]+)(?:\s*:\s*([0-9]+))?")
_LABELS = re.compile(r"\[[^\]]*\]\s*x\s*\[[^\]]*\]\s*->\s*\[[^\]]*\]")
_DECLARED = re.compile(r"\(\s*[^\s%)]")
"""The list of types of a declaration."""
_KNOWN = re.compile(r"(?:stablehlo|chlo|func|sdy)\.\w+|builtin\.module|module|return|call")
_SAME = frozenset({"stablehlo.select", "stablehlo.clamp"})
"""Operations whose list of types is not that of all operands; the last is the result's."""


class PrettyReader(OperationReader):
    """Reads operations in both forms."""

    def pretty(self, operation: Operation) -> None:
        name = operation.name
        if _KNOWN.fullmatch(name) is None:
            raise self.error(f"{name} is no operation of StableHLO or CHLO", operation.position)
        form = _FORMS.get(name)
        if form is not None:
            form(self, operation)
            return
        if self.accept("("):
            self.items(operation, ")")
            self.expect(")")
        else:
            self.items(operation, ":")
        self.rest(operation)

    def items(self, operation: Operation, end: str) -> None:
        """Operands, words and ``name = value``, with commas between them."""
        words: list[str] = []
        while not self.peek(end) and not self.peek("{") and not self.peek(":"):
            if (operand := self.match(SSA)) is not None:
                operation.operands.append(operand[1:])
            else:
                word = self.take(_WORD, "an operand, an attribute or ':'")
                if self.accept("="):
                    operation.attributes[word] = self.value(",:{")
                else:
                    words.append(word)
            if not self.accept(","):
                break
        if words:
            operation.attributes["words"] = " ".join(words)

    def rest(self, operation: Operation) -> None:
        """``{attributes} : types``."""
        if self.peek("{"):
            operation.attributes |= dictionary(self, self.aliases)
        self.typed(operation)

    def typed(self, operation: Operation) -> None:
        """``: types``; a list without ``->`` has the types of operands and results in one."""
        if not self.accept(":"):
            if operation.results:
                raise self.error(f"expected ':' and types, found {self.shown()}")
            return
        self.signature(operation)
        types, count = operation.result_types, len(operation.results)
        if operation.operand_types:
            return
        if operation.name in _SAME or count == 1:
            operation.result_types = types[-1:]
        elif not count:
            operation.operand_types, operation.result_types = types, []


def _module(r: PrettyReader, o: Operation) -> None:
    if r.peek("@"):
        o.attributes["sym_name"] = f'"{r.symbol()}"'
    if r.accept("attributes"):
        o.attributes |= dictionary(r, r.aliases)
    o.regions.append(r.region())


def _func(r: PrettyReader, o: Operation) -> None:
    """``func.func public @name(%a: type {…}) -> (type {…}) attributes {…} { … }``."""
    for visibility in ("public", "private", "nested"):
        if r.accept(visibility):
            o.attributes["sym_visibility"] = f'"{visibility}"'
    o.attributes["sym_name"] = f'"{r.symbol()}"'
    if _DECLARED.match(r.text, r.skip()) is not None:
        r.listed("(", ")", r.type)
        arguments = None
    else:
        arguments = r.listed("(", ")", r.argument)
    if r.accept("->"):
        r.types()
    if r.accept("attributes"):
        o.attributes |= dictionary(r, r.aliases)
    if arguments is not None and r.peek("{"):
        o.regions.append(r.region(arguments))


def _call(r: PrettyReader, o: Operation) -> None:
    """``call @f(%a)``, ``custom_call @target(%a) {…}``."""
    symbol = r.symbol()
    custom = o.name == "stablehlo.custom_call"
    o.attributes["call_target_name" if custom else "callee"] = f'"{symbol}"'
    o.operands = r.listed("(", ")", r.operand)
    r.rest(o)


def _composite(r: PrettyReader, o: Operation) -> None:
    o.attributes["name"] = r.take(STRING, "a name")
    r.items(o, ":")
    r.rest(o)


def _constant(r: PrettyReader, o: Operation) -> None:
    """``constant {…} dense<…> : type``; the type belongs to the value."""
    if r.peek("{"):
        o.attributes |= dictionary(r, r.aliases)
    begin = r.skip()
    r.position = balanced(r.text, begin, ":")
    elements = spaced(r.text[begin : r.position].strip())
    r.expect(":")
    kind = r.type()
    o.attributes["value"] = f"{elements} : {kind}"
    o.result_types = [kind]


def _slice(r: PrettyReader, o: Operation) -> None:
    """``slice %a [0:4:2, 1:3]``."""
    o.operands.append(r.operand())
    rows = r.listed("[", "]", lambda: r.take(_RANGE, "start:limit"))
    parts = [_RANGE.fullmatch(row) for row in rows]
    for place, name in enumerate(("start_indices", "limit_indices", "strides"), 1):
        numbers = [part[place] or "1" for part in parts if part is not None]
        o.attributes[name] = f"[{', '.join(numbers)}]"
    r.rest(o)


def _get_tuple_element(r: PrettyReader, o: Operation) -> None:
    o.operands.append(r.operand())
    r.expect("[")
    o.attributes["index"] = str(r.integer("an index"))
    r.expect("]")
    r.rest(o)


def _reduce(r: PrettyReader, o: Operation) -> None:
    """``reduce(%a init: %b), (%c init: %d) [applies op] across dimensions = […]``.

    Without ``applies``, ``reducer(%l0, %r0) (%l1, %r1) { … }`` follows: the block takes the left
    values of all operands, then the right ones.
    """
    initials: list[str] = []
    while True:
        r.expect("(")
        o.operands.append(r.operand())
        r.expect("init")
        r.expect(":")
        initials.append(r.operand())
        r.expect(")")
        if not r.accept(","):
            break
    o.operands += initials
    if r.accept("applies"):
        o.attributes["applies"] = r.take(OPERATION, "an operation")
    r.expect("across")
    r.expect("dimensions")
    r.expect("=")
    o.attributes["dimensions"] = r.value(":{")
    r.rest(o)
    if "applies" in o.attributes:
        return
    r.expect("reducer")
    left: list[tuple[str, str]] = []
    right: list[tuple[str, str]] = []
    while r.peek("("):
        pair = r.listed("(", ")", r.argument)
        if len(pair) != 2:
            raise r.error("expected two values of each operand")
        left.append(pair[0])
        right.append(pair[1])
    o.regions.append(r.region(left + right))


def _while(r: PrettyReader, o: Operation) -> None:
    """``while(%a = %b, …) : types [attributes {…}] cond { … } do { … }``."""
    names: list[str] = []

    def pair() -> None:
        names.append(r.operand())
        r.expect("=")
        o.operands.append(r.operand())

    r.listed("(", ")", pair)
    if r.accept(":"):
        o.result_types = r.types()
    if r.accept("attributes"):
        o.attributes |= dictionary(r, r.aliases)
    if len(names) != len(o.result_types):
        raise r.error(f"while has {len(names)} values, {len(o.result_types)} types", o.position)
    arguments = list(zip(names, o.result_types, strict=True))
    r.expect("cond")
    o.regions.append(r.region(arguments))
    r.expect("do")
    o.regions.append(r.region(arguments))


def _convolution(r: PrettyReader, o: Operation) -> None:
    """``convolution(%a, %b) dim_numbers = […]x[…]->[…], window = {…} {…}``."""
    o.operands = r.listed("(", ")", r.operand)
    r.expect("dim_numbers")
    r.expect("=")
    o.attributes["dimension_numbers"] = f"#stablehlo.conv<{r.take(_LABELS, 'dimension numbers')}>"
    r.expect(",")
    r.expect("window")
    r.expect("=")
    for name, text in dictionary(r, r.aliases).items():
        o.attributes[_WINDOW.get(name, name)] = text
    r.rest(o)


_WINDOW = {
    "stride": "window_strides",
    "pad": "padding",
    "lhs_dilate": "lhs_dilation",
    "rhs_dilate": "rhs_dilation",
    "reverse": "window_reversal",
}


def _mesh(r: PrettyReader, o: Operation) -> None:
    """``sdy.mesh @mesh = <["x"=4]>``."""
    o.attributes["sym_name"] = f'"{r.symbol()}"'
    r.expect("=")
    o.attributes["mesh"] = _angles(r)
    if r.peek("{"):
        o.attributes |= dictionary(r, r.aliases)


def _constraint(r: PrettyReader, o: Operation) -> None:
    o.operands.append(r.operand())
    o.attributes["sharding"] = _angles(r)
    r.rest(o)


def _angles(r: PrettyReader) -> str:
    """What stands in ``<…>``."""
    r.expect("<")
    inside = r.value(">")
    r.expect(">")
    return inside


def _manual_computation(r: PrettyReader, o: Operation) -> None:
    """``manual_computation(%a) in_shardings=[…] … manual_axes={…} (%b: type) {…}``."""
    o.operands = r.listed("(", ")", r.operand)
    for name in ("in_shardings", "out_shardings", "manual_axes"):
        r.expect(name)
        r.expect("=")
        begin = r.skip()
        r.position = balanced(r.text, begin)
        o.attributes[name] = spaced(r.text[begin : r.position])
    arguments = r.listed("(", ")", r.argument)
    o.regions.append(r.region(arguments))
    r.typed(o)


_FORMS: dict[str, Callable[[PrettyReader, Operation], None]] = {
    "module": _module,
    "builtin.module": _module,
    "func.func": _func,
    "call": _call,
    "func.call": _call,
    "stablehlo.custom_call": _call,
    "stablehlo.composite": _composite,
    "stablehlo.constant": _constant,
    "chlo.constant": _constant,
    "stablehlo.slice": _slice,
    "stablehlo.get_tuple_element": _get_tuple_element,
    "stablehlo.reduce": _reduce,
    "stablehlo.while": _while,
    "stablehlo.convolution": _convolution,
    "sdy.mesh": _mesh,
    "sdy.sharding_constraint": _constraint,
    "sdy.manual_computation": _manual_computation,
}
