"""Write a pass for the nodes of a place.

It can have each of the authors' styles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined

from gehost import quoting
from gehost.errors import UsageError
from gehost.host.new_pass_styles import Style, StyleRegistry
from gehost.host.plugins import Plugins, installed_plugins
from gehost.ir.graph import split_op
from gehost.ir.schemas import history
from gehost.scaffold.place import Operator, Place
from gehost.spelling import hint

DECOMPOSE = "decompose"
"""The style of one node."""


@dataclass(frozen=True)
class Names:
    """Names of the new pass and of its operator."""

    stem: str
    """File name without its suffix."""
    pass_name: str
    op: str
    """The operator that replaces the nodes."""
    stage: str
    origin: str
    """Where the nodes are, for the docstring."""


@dataclass(frozen=True)
class Replaced:
    """The node that a DecomposePass replaces."""

    operator: Operator
    slots: Sequence[tuple[int, str]]
    """Its inputs up to the last that is used, with the names of their tensors; "" for others."""
    same: Sequence[tuple[int, int]]
    """Two of its inputs that are one tensor."""
    present: Sequence[bool]
    """For each of its inputs, whether it is present; empty where none is optional."""
    parts: bool
    """Whether the place is the node's parts; else it is the node itself."""


def installed_styles() -> StyleRegistry:
    """Load the styles of this package and of installed plugins.

    Raises:
        VendorError: a plugin cannot be loaded, or takes a name that is taken.
    """
    registry = StyleRegistry()
    registry.add("class", _template("place_class.py.jinja"), first=_template("pass.py.txt"))
    registry.add(DECOMPOSE, _template(f"place_{DECOMPOSE}.py.jinja"))
    Plugins(installed_plugins()).call("gehost_register_styles", registry=registry)
    return registry


def style_of(name: str) -> Style:
    """Return an installed style.

    Raises:
        UsageError: there is none of this name.
    """
    styles = installed_styles()
    style = styles.get(name)
    if style is None:
        advice = hint(name, styles) or f"; there are {', '.join(styles)}"
        raise UsageError(f"there is no style {name}{advice}", where="--style")
    return style


def written(style: Style, place: Place, names: Names, replaced: Replaced | None) -> tuple[str, str]:
    """Write the pass and its test as Python.

    Args:
        replaced: of a DecomposePass; None for the other styles.

    Raises:
        UsageError: the style cannot express something of the place.
    """
    environment = Environment(
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - it writes Python
    )
    filters: dict[str, Any] = {
        "arguments": _arguments,
        "call": _call,
        "docstring": quoting.in_docstring,
        "entries": quoting.entries,
        "keywords": _keywords,
        "outputs_of": _outputs_of,
        "prefixed": _prefixed,
        "quoted": _quoted,
        "unpacked": _unpacked,
    }
    environment.filters.update(filters)
    written_out = [*place.operators, *([] if replaced is None else [replaced.operator])]
    context: dict[str, Any] = {
        **vars(names),
        "place": place,
        "body": lambda: _body(place, names.op),
        "es_call": _es_call,
        "refuse": _refuse,
        "op_type": split_op(names.op)[1],
        "parts": False,
        "uses_numpy": any("np.array(" in t for op in written_out for t in op.asked.values()),
    }
    if replaced is not None:
        context.update(
            replaced=replaced.operator.op,
            replaced_type=split_op(replaced.operator.op)[1],
            asked=replaced.operator.exact,
            defaults=replaced.operator.defaults,
            slots=replaced.slots,
            same=replaced.same,
            present=list(replaced.present),
            parts=replaced.parts,
        )
    test = _template("test_place.py.jinja")
    return (
        environment.from_string(style.template).render(context),
        environment.from_string(test).render(context),
    )


def _template(name: str) -> str:
    return (files("gehost") / "templates" / name).read_text(encoding="utf-8")


def _refuse(problem: str) -> None:
    raise UsageError(problem, where="--style")


def _body(place: Place, op: str) -> str:
    """Write the operator that replaces the nodes, with its body."""
    outputs = f", outputs=[{_quoted(place.outputs)}]" if len(place.outputs) > 1 else ""
    lines = [f"@ops.register({_quoted(op)}{outputs})", f"def body({', '.join(place.operands)}):"]
    lines += [
        f"    {_unpacked(operator.results, several=False)} = {_es_call(operator, operator.given)}"
        for operator in place.operators
    ]
    return "\n".join([*lines, f"    return {', '.join(place.outputs)}", ""])


def _es_call(operator: Operator, names: Mapping[str, str]) -> str:
    """Write a call such as ``es.Softmax(x, axis=-1)``."""
    return f"{_call(operator, 'es.', 'es.op')}({_arguments(operator, names)})"


def _call(operator: Operator, attribute: str, function: str) -> str:
    """Write what is called: ``es.Softmax`` for an operator of ONNX, else ``es.op("acme::Op")``."""
    domain, op_type = split_op(operator.op)
    is_onnx = not domain and quoting.is_plain(op_type) and history(domain, op_type)
    return (
        f"{attribute}{op_type}" if is_onnx else f"{function}({quoting.python_string(operator.op)})"
    )


def _arguments(operator: Operator, names: Mapping[str, str]) -> str:
    several = len(operator.results) > 1 and "split" not in names
    count = {"num_outputs": str(len(operator.results))} if several else {}
    return ", ".join([*operator.operands, *quoting.keywords({**names, **count})])


def _keywords(texts: Mapping[str, str]) -> str:
    return ", ".join(quoting.keywords(texts))


def _quoted(text: str | Sequence[str]) -> str:
    """Write a text as a string, several ones as strings between commas."""
    return (
        quoting.python_string(text)
        if isinstance(text, str)
        else ", ".join(map(quoting.python_string, text))
    )


def _unpacked(names: Sequence[str], *, several: bool = True) -> str:
    """Targets of an assignment; ``several``: a single one is unpacked, too."""
    return f"{names[0]}," if several and len(names) == 1 else ", ".join(names)


def _prefixed(texts: Sequence[str], prefix: str) -> str:
    return ", ".join(
        f"{prefix}{text}" if text.isidentifier() and text != "None" else text for text in texts
    )


def _outputs_of(names: Sequence[str], result: str) -> str:
    return ", ".join(f"{result}.Output({index})" for index in range(len(names)))
