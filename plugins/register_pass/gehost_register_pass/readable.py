"""A rule as Python text, and expressions as its parts.

The text would be traced to the rule.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from keyword import iskeyword
from math import isfinite
from typing import Any, Final, cast

from gehost import expressions as ex

from .program import Input, Op, Operand, Pair, Program, Rule, count_outputs
from .reference import Ref

_INDENT: Final = "    "


class Names:
    """The printed names of a pair's tensors and operators.

    Examples are ``x``, ``add_0``, and in the replacement ``sum_r0``.
    """

    def __init__(self, pair: Pair) -> None:
        self.inputs = [input_.name for input_ in pair.inputs]
        self.op = "PassDesc.OP" if "op" in self.inputs else "op"
        self.pattern = [
            self._unused(f"{_stem(op)}_{number}") for number, op in enumerate(pair.pattern.ops)
        ]
        self.replace = [
            self._unused(f"{_stem(op)}_r{number}") for number, op in enumerate(pair.replace.ops)
        ]
        types = [op.type for op in pair.pattern.ops]
        self.mapped = [
            f"op={_literal(type_)}, index={types[:number].count(type_)}"
            for number, type_ in enumerate(types)
        ]

    def _unused(self, name: str) -> str:
        return self._unused(f"{name}_") if name in self.inputs else name


def _stem(op: Op) -> str:
    return "".join(
        letter if letter.isalnum() else "_" for letter in op.type.rpartition("::")[2].lower()
    )


def readable(rule: Rule) -> str:
    """A rule as Python: tracing it gives the rule again."""
    function = rule.name if rule.name.isidentifier() and not iskeyword(rule.name) else "rule"
    lines = [
        f"# {rule.origin}",
        f"@RegisterPass({', '.join(_registration(rule, function))})",
        f"def {function}():",
    ]
    for number, pair in enumerate(rule.pairs):
        suffix = f"_{number}" if len(rule.pairs) > 1 else ""
        names = Names(pair)
        arguments = ", ".join(names.inputs)
        *ops, returned = _program(pair.pattern, names, names.pattern, pattern=True)
        conditions = [f"{_INDENT * 2}{text_of(condition, names)}" for condition in pair.conditions]
        inner = list(dict.fromkeys(_inner_tensors(pair.replace, names)))
        lines += [f"{_INDENT}{name} = None" for name in inner]
        lines += [f"{_INDENT}def pattern{suffix}({arguments}):"]
        lines += [f"{_INDENT * 2}nonlocal {', '.join(inner)}"] if inner else []
        lines += [*ops, *conditions, returned, ""]
        lines += [f"{_INDENT}def replace{suffix}({arguments}):"]
        lines += [*_program(pair.replace, names, names.replace, pattern=False), ""]
    pairs = ", ".join(f"(pattern_{number}, replace_{number})" for number in range(len(rule.pairs)))
    lines.append(f"{_INDENT}return {'pattern, replace' if len(rule.pairs) == 1 else f'[{pairs}]'}")
    return "\n".join(lines) + "\n"


def _inner_tensors(replace: Program, names: Names) -> Iterator[str]:
    """Yield inner operators of which a replacement asks sizes or dtype."""
    for expression in replace.expressions:
        if isinstance(expression, ex.TensorAttr) and expression.tensor.op is not None:
            yield names.pattern[expression.tensor.op]


def _registration(rule: Rule, function: str) -> Iterator[str]:
    if function != rule.name:
        yield f"name={_literal(rule.name)}"
    specs = {input_.name: input_ for pair in rule.pairs for input_ in pair.inputs}
    specs_ = [
        f"{_literal(name)}: {spec}" for name, input_ in specs.items() if (spec := _spec(input_))
    ]
    if specs_:
        yield f"input_specs={{{', '.join(specs_)}}}"
    yield f"stage=CustomPassStage.{rule.stage.name}"
    for what, opset in (("min_opset", rule.min_opset), ("max_opset", rule.max_opset)):
        if opset is not None:
            yield f"{what}={opset}"
    if rule.shape_proven:
        yield "shape_proven=True"
    if not rule.default:
        yield "default=False"


def _spec(input_: Input) -> str:
    if input_.constant:
        return "ParamAttr()"
    if input_.shape is None and input_.dtype is None:
        return ""
    shape = None if input_.shape is None else list(input_.shape)
    return f"InputSpec({shape}{'' if input_.dtype is None else f', {_literal(input_.dtype)}'})"


def _program(program: Program, names: Names, own: list[str], *, pattern: bool) -> list[str]:
    lines: list[str] = []
    for name, op in zip(own, program.ops, strict=True):
        arguments = [_operand(operand, names, own) for operand in op.inputs]
        arguments += [f"{keyword}={_operand(operand, names, own)}" for keyword, operand in op.named]
        arguments += [
            f"{keyword}={text_of(value, names, pattern=pattern)}"
            for keyword, value in op.attributes
        ]
        if op.outputs is not None:
            arguments.append(f"num_outputs={op.outputs}")
        call = f"{names.op}({_literal(op.type)})" if "::" in op.type else f"{names.op}.{op.type}"
        ending = ".Commutative()" if op.commutative else ""
        lines.append(f"{_INDENT * 2}{name} = {call}({', '.join(arguments)}){ending}")
    returned = [_returned(ref, program, names, own) for ref in program.outputs]
    lines.append(f"{_INDENT * 2}return {', '.join(returned)}")
    return lines


def _returned(ref: Ref, program: Program, names: Names, own: list[str]) -> str:
    """A returned tensor; an operator of several outputs cannot be returned whole."""
    text = _ref(ref, names, own)
    if ref.op is None or ref.index:
        return text
    op = program.ops[ref.op]
    return f"{text}.Output(0)" if count_outputs(op.type, op.outputs) > 1 else text


def _operand(operand: Operand, names: Names, own: list[str]) -> str:
    if operand is None:
        return "None"
    return (
        _ref(operand, names, own)
        if isinstance(operand, Ref)
        else text_of(operand, names, pattern=False)
    )


def _ref(ref: Ref, names: Names, own: list[str]) -> str:
    if ref.op is None:
        return names.inputs[ref.index]
    return own[ref.op] if ref.index == 0 else f"{own[ref.op]}.Output({ref.index})"


def text_of(source: ex.Expression | ex.Condition, names: Names, *, pattern: bool = True) -> str:
    """Return an expression or condition of a pair as text.

    It is written as in its pattern or its replace function.
    """

    def text(expression: ex.Expression) -> str:
        match expression:
            case ex.Constant(value):
                return _literal(value)
            case ex.TensorAttr(Ref(None, index), name):
                return f'{names.inputs[index]}.Attr("{name}")'
            case ex.TensorAttr(Ref(op, index), name):
                assert op is not None
                return f'{names.pattern[op]}.Output({index}).Attr("{name}")'
            case ex.OpAttr(op, name):
                return (
                    f'{names.pattern[op]}.Attr("{name}")'
                    if pattern
                    else f'MappedPattern({names.mapped[op]}, name="{name}")'
                )
            case ex.Item(of, index):
                return f"{text(of)}[{index}]"
            case ex.Size(of):
                return f"{text(of)}.Size()"
            case ex.Binary(sign, left, right):
                return f"({text(left)} {sign} {text(right)})"
            case ex.Listed(items):
                return f"[{', '.join(map(text, items))}]"
            case ex.Native(path, arguments, _):
                name = path.rpartition(":")[2].rpartition("<locals>.")[2]
                return f"{name}({', '.join(map(text, arguments))})"
            case _:
                raise TypeError(f"a traced rule has no {type(expression).__name__}")

    if isinstance(source, ex.Condition):
        if (
            source.relation == "=="
            and isinstance(source.right, ex.Constant)
            and source.right.value is True
        ):
            return f"{text(source.left)}.Holds()"
        return f"{text(source.left)} {source.relation} {text(source.right)}"
    return text(source)


def _literal(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_literal, cast('tuple[Any, ...]', value)))}]"
    if isinstance(value, float) and not isfinite(value):
        return f'float("{value}")'
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
