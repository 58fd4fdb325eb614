"""An error or interrupt at every line of a rewrite leaves the graph as it was, and the next rewrite works.

The lines are counted and interrupted one by one by ``sys.settrace``: every line of ``gehost`` that runs inside the
transaction, not a list of chosen points. Of a line that one chain of calls runs often, as in a loop, the first and the
last time are interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Self

import numpy as np
import onnx
import pytest

import gehost
from gehost import EsGraph, EsGraphBuilder, Pattern, PatternMatcher, es, ops
from gehost.infer import infer_model
from gehost.ir.model import Model
from gehost.ops import OpRegistry
from gehost.rewrite.provenance import Author
from gehost.rewrite.replace import replace_region
from gehost.rewrite.session import RewriteSession
from gehost.testing import parse

PACKAGE = str(Path(gehost.__file__).parent)


class Fault(Exception):
    """What no code of gehost's expects."""


class Interrupt(KeyboardInterrupt):
    """Told from a Ctrl-C of whoever runs the tests."""


class Steps:
    """Counts the lines of gehost that run in a ``with`` block, and raises ``error`` at the one numbered ``at``."""

    def __init__(self, at: int = -1, error: type[BaseException] = Fault) -> None:
        self.count = 0
        self._at, self._error = at, error

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "call":
            return self._trace if frame.f_code.co_filename.startswith(PACKAGE) else None
        if event == "line":
            self.count += 1
            if self.count - 1 == self._at:
                sys.settrace(None)
                raise self._error
        return self._trace


class Chains(Steps):
    """Also notes at which count a line ran, for the first and for the last time, below the same lines that call it."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: dict[tuple[Any, ...], list[int]] = {}

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            chain: list[Any] = []
            caller: FrameType | None = frame
            while caller is not None and caller.f_code.co_filename != __file__:
                chain += [caller.f_code, caller.f_lineno]
                caller = caller.f_back
            self.ends.setdefault(tuple(chain), [self.count, 0])[1] = self.count
        return super()._trace(frame, event, argument)


ERRORS = (Fault, Interrupt, MemoryError)

# -- rewrites -------------------------------------------------------------------------------------------------------


def graph(inputs: int, make: Callable[..., Any]) -> EsGraph:
    builder = EsGraphBuilder("graph")
    result = make(*builder.CreateInputs(inputs))
    return builder.BuildAndReset(result if isinstance(result, list) else [result])


@ops.register("acme::HalfSum")
def half_sum(x: Any, y: Any) -> Any:
    return es.Add(es.Mul(x, 0.5), es.Mul(y, 0.5))


HEADER = '<ir_version: {ir}, opset_import: ["" : {opset}]> main '
NESTED = """(float[2, 3] x, bool c) => (float[2, 3] y, float[2, 3] z, float[2, 3] w) {
    a = Relu (x)
    b = Neg (a)
    early = Abs (b)
    d = Exp (a)
    y = If (c) <then_branch = inner () => (float[2, 3] t) { s = Mul (b, d) t = Neg (s) },
                else_branch = other () => (float[2, 3] u) { u = Identity (d) }>
    z = Add (early, d)
    w = Identity (b)
}"""
NORM = "(float[2, 3] x) => (float[2, 1] y) { m = ReduceMean <axes = [-1], keepdims = 1> (x) y = Sqrt (m) }"
MUL = """(float[2, 3] x, float[2, 3] y) => (float[2, 3] z) {
    s = Add (x, y)
    half = Constant <value = float {0.5}> ()
    z = Mul (s, half)
}"""
BRANCH = """(float[2] x, bool c) => (float[2] y) {
    a = Relu (x)
    b = If (c) <then_branch = g () => (float[2] t) { t = Neg (a) }, else_branch = h () => (float[2] e) { e = Abs (a) }>
    y = Abs (b)
}"""

REWRITES: dict[str, tuple[str, int, int, EsGraph, EsGraph]] = {
    "two outputs, read in a body": (
        NESTED,
        10,
        17,
        graph(1, lambda x: [es.Neg(r := es.Relu(x)), es.Exp(r)]),
        graph(1, lambda x: [es.Neg(r := es.Clip(x, min=0.0)), es.Div(1.0, es.Exp(es.Neg(r)))]),
    ),
    "an input forwarded to an output": (
        NESTED,
        10,
        17,
        graph(1, lambda x: [n := es.Neg(x), es.Identity(n)]),
        graph(1, lambda x: [x, x]),
    ),
    "a new function": (
        MUL,
        10,
        17,
        graph(2, lambda x, y: es.Mul(es.Add(x, y), 0.5)),
        graph(2, es.op("acme::HalfSum")),
    ),
    "axes as an attribute": (
        NORM,
        10,
        13,
        graph(1, lambda x: es.Sqrt(es.ReduceMean(x))),
        graph(1, lambda x: es.Abs(es.Sqrt(es.ReduceMean(x, axes=[1], keepdims=1)))),
    ),
    "axes as an input": (
        NORM.replace("<axes = [-1], keepdims = 1> (x)", "<keepdims = 1> (x, axes)").replace(
            "{ m", "{ axes = Constant <value = int64[1] {-1}> () m"
        ),
        10,
        18,
        graph(1, lambda x: es.Sqrt(es.ReduceMean(x))),
        graph(1, lambda x: es.Abs(es.Sqrt(es.ReduceMean(x, axes=[1], keepdims=1)))),
    ),
    "constants as nodes": (BRANCH, 3, 13, graph(1, es.Relu), graph(1, lambda x: es.Max(x, 0.0))),
}


class Rewriting:
    """One rewrite of one model, to be done again and again."""

    def __init__(self, name: str, describe: Any) -> None:
        text, ir, opset, find, self._put = REWRITES[name]
        self.model = Model(parse(HEADER.format(ir=ir, opset=opset) + text))
        infer_model(self.model)
        self._find = Pattern(find)
        self._registry = OpRegistry()
        self._registry.add_marked(globals())
        self._describe = describe

    def state(self) -> tuple[bytes, Any, Any]:
        """The model as it would be saved, its index, which is proven, and what it knows beside."""
        self.model.check()
        content = self.model.flush().SerializeToString(deterministic=True)
        return (
            content,
            self._describe(self.model),
            (dict(self.model.opsets), list(self.model.new_functions)),
        )

    def done(self, steps: Steps) -> None:
        """Rewrite, interrupted where ``steps`` says; nothing is known from the last time."""
        match = PatternMatcher(self._find, self.model.graph).MatchNext()
        assert match is not None
        region = match.region()
        session = RewriteSession(self.model, self._registry, Author("Fuse", "acme"))
        with steps:
            replace_region(session, region, self._put)


@pytest.mark.parametrize("name", REWRITES)
def test_an_error_at_any_line_of_a_rewrite_leaves_the_graph_as_it_was(
    name: str, describe: Any
) -> None:
    rewriting, steps = Rewriting(name, describe), Chains()
    model, before = rewriting.model, rewriting.state()
    assert describe(model, types=False) == describe.fresh(model, types=False)
    for _ in range(2):  # the first time fills caches
        steps, mark = Chains(), model.mark()
        rewriting.done(steps)
        expected = describe(model)
        model.undo(mark)
        assert rewriting.state() == before
    for at in sorted({at for ends in steps.ends.values() for at in ends}):
        with pytest.raises(BaseException) as caught:  # noqa: PT011 - whatever it became on its way
            rewriting.done(Steps(at, ERRORS[at % len(ERRORS)]))
        assert rewriting.state() == before, f"after {caught.traceback[-1]}"
    rewriting.done(Steps())
    assert describe(model) == expected


# -- edits by hand --------------------------------------------------------------------------------------------------


def edited(model: Model) -> None:
    """Every method of ``Graph`` and ``Model`` that edits."""
    root = model.graph
    a, b, early, d, branch, *_ = list(root.nodes)
    body = onnx.parser.parse_graph("g () => (float[2, 3] t) { q = Abs (a) t = Neg (q) }")
    x, c = root.inputs
    result = root.add_node(
        "If",
        [c],
        ["new"],
        {"then_branch": body, "else_branch": body},
        name="made",
        after=a,
        metadata={"k": "v"},
    )
    root.set_attribute(result, "note", "added")
    root.set_attribute(result, "note", 3)
    root.set_attribute(result, "note", None)
    root.set_metadata(result, "k", "other")
    root.set_metadata(b, "l", "new")
    constant = root.add_initializer(np.ones((2, 3), np.float32), model.fresh_name("one"))
    unread = root.add_initializer(np.zeros(3, np.float32), "unread")
    root.remove_initializer(unread)
    root.move_after(d, a)
    root.set_input(early, 0, constant)
    root.set_input(early, 0, None)
    root.set_input(early, 0, x)
    root.set_type(constant, None)
    spare = root.release(b.outputs[0])
    root.add_node("Sigmoid", [spare], [spare.graph.values["b"]], after=b)
    for node in list(branch.bodies[0].nodes):
        branch.bodies[0].set_metadata(node, "k", "v")
    lonely = root.add_node("Neg", [x], ["lonely"])
    root.remove_node(lonely)
    root.remove_node(result)
    model.import_domain("acme", 1)
    model.offer_function("acme::F", onnx.FunctionProto(name="F", domain="acme"))


def test_an_error_at_any_line_of_any_edit_is_undone(describe: Any) -> None:
    rewriting = Rewriting("two outputs, read in a body", describe)
    model, before = rewriting.model, rewriting.state()

    def result(steps: Steps) -> None:
        mark = model.mark()
        try:
            with steps:
                edited(model)
            assert describe(model) != before[1]
        finally:
            model.undo(mark)

    for _ in range(2):
        result(steps := Steps())
        assert rewriting.state() == before
    for at in range(steps.count):
        with pytest.raises(ERRORS) as caught:
            result(Steps(at, ERRORS[at % len(ERRORS)]))
        assert rewriting.state() == before, f"after {caught.traceback[-1]}"


def crowded(model: Model) -> None:
    """Edits until the nodes' order numbers are given anew."""
    first = next(model.graph.nodes)
    while not model.renumbered:
        name = model.fresh_name("crowd")
        model.graph.add_node("Neg", first.outputs, [name], name=name, after=first)


def test_an_error_at_any_line_of_new_order_numbers_is_undone(describe: Any) -> None:
    def result(steps: Steps) -> None:
        rewriting = Rewriting("two outputs, read in a body", describe)
        model, before = rewriting.model, rewriting.state()
        mark = model.mark()
        try:
            with steps:
                crowded(model)
        finally:
            model.undo(mark)
            assert rewriting.state() == before
            assert sorted(order := [node.order for node in model.graph.nodes]) == order

    for _ in range(2):  # the first time fills caches
        result(steps := Steps())
    for at in range(max(steps.count - 100, 0), steps.count):  # the last of these edits
        with pytest.raises(Interrupt):
            result(Steps(at, Interrupt))


def without_axes(model: Model) -> None:
    model.graph.set_attribute(next(model.graph.nodes), "axes", None)


@pytest.mark.parametrize(
    ("name", "edit"),
    [("two outputs, read in a body", edited), ("axes as an attribute", without_axes)],
    ids=["all", "first attribute"],
)
def test_an_undo_that_is_interrupted_at_any_line_can_be_repeated(
    name: str, edit: Callable[[Model], None], describe: Any
) -> None:
    rewriting = Rewriting(name, describe)
    model, before = rewriting.model, rewriting.state()
    mark = model.mark()
    for at in range(100_000):
        edit(model)
        with suppress(Interrupt), (steps := Steps(at, Interrupt)):
            model.undo(mark)
        model.undo(mark)
        assert rewriting.state() == before
        mark = model.mark()
        if steps.count <= at:
            break


def test_an_interrupt_at_any_line_of_a_flush_leaves_each_node_its_protobuf() -> None:
    for at in range(100_000):
        model = Model(parse(HEADER.format(ir=10, opset=17) + NESTED))
        graph, x = model.graph, model.graph.inputs[0]
        stays = graph.add_node("Neg", [x], ["added"], name="added")
        removed = graph.add_node("Neg", [x], ["removed"], name="removed", after=stays)
        graph.remove_nodes([removed, graph.add_node("Neg", [x], ["gone"], name="gone")])
        with suppress(Interrupt), (steps := Steps(at, Interrupt)):
            graph.flush()
        later = graph.add_node("Neg", [x], ["later"], name="later")
        for _ in range(2):
            assert [node.proto.output[0] for node in graph.nodes] == [
                "later",
                "added",
                "a",
                "b",
                "early",
                "d",
                *"yzw",
            ]
            assert (removed.name, stays.name, later.name) == ("removed", "added", "later")
            model.flush()
            assert list(graph.protos) == [node.proto for node in graph.nodes]
        if steps.count <= at:
            break


def test_an_interrupt_where_the_names_are_read_makes_no_name_twice() -> None:
    def result(steps: Steps) -> None:
        model = Model(
            parse(
                HEADER.format(ir=10, opset=17)
                + "(float[2] x) => (float[2] y_0) { [n_0] v_0 = Relu (x) y_0 = Abs (v_0) }"
            )
        )
        try:
            with steps:
                model.fresh_name("n")
        finally:
            assert not {model.fresh_name(stem) for stem in "nvy"} & {"n_0", "v_0", "y_0"}

    result(steps := Steps())
    for at in range(steps.count):
        with pytest.raises(Interrupt):
            result(Steps(at, Interrupt))
