"""``FuseElementwisePass``: a node with a function as its body per group."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary, ref

import onnx
import onnx.parser

from gehost import (
    NOT_CHANGED,
    SUCCESS,
    CustomPassContext,
    CustomPassStage,
    EsGraph,
    EsGraphBuilder,
    FusionBasePass,
    Graph,
    Node,
    PassOption,
    PassRegistry,
    PassSpec,
    Refusal,
    Refused,
    Region,
    Status,
    VendorError,
    es,
)
from gehost import Value as Tensor
from gehost_linalg.control import (
    Control,
    ControlError,
    MultiUse,
    control_named,
    multi_use_named,
    unknown,
)
from gehost_linalg.driver import ALL_COMPANIONS
from gehost_linalg.groups.body import DOMAIN, Body, Signature
from gehost_linalg.groups.derive import derive
from gehost_linalg.groups.grouping import GROUP_COMPANIONS, Group, Grouping, fused_block
from gehost_linalg.groups.leave_alone import left_to_runtime
from gehost_linalg.groups.lowered import PARAMETERS, Lowered, splat_of
from gehost_linalg.groups.row_space import is_boundary
from gehost_linalg.inline import inline_calls
from gehost_linalg.reshape import EXPANSION, MERGING, RESHAPE
from gehost_linalg.splits import state_splits

NAME = "FuseElementwisePass"

_SIZED = frozenset({"Expand", "Reshape", "Slice", "Split", "Squeeze"})
"""Operators whose lowering may depend on sizes."""
_MOST_PLANS = 8
"""Rounds of grouping; each leaves out the nodes that no body of the last round could hold."""


class Plan:
    """The groups of one graph, and why others were not formed.

    Attributes:
        lowered: the operations before fusion.
        grouping: the operations after fusion, in groups.
        groups: those that are worth a node.
        settings: the values of the pass's options.
        control, multi_use: as the settings name them.
        refusals: (node, reason) pairs, ``key: text``.
    """

    def __init__(
        self, graph: Graph, settings: Mapping[str, Any], controls: Mapping[str, Control]
    ) -> None:
        self.settings = settings
        self.control = control_named(settings["control"], controls)
        self.multi_use: MultiUse = multi_use_named(settings["multi_use"])
        rest: dict[Node, str] = {}
        for _ in range(_MOST_PLANS):
            self._form_groups(graph, rest)
            result = self._underivable()
            if not result:
                break
            rest |= result

    def _form_groups(self, graph: Graph, rest: Mapping[Node, str]) -> None:
        """Lower, fuse and group; nodes of ``rest`` are left alone for their reason."""
        to_runtime = left_to_runtime() if self.settings["leave_alone"] else take_all
        companions = companions_named(self.settings["companions"])
        self.lowered = Lowered(
            graph, lambda node: rest.get(node) or to_runtime(node), reshapes=RESHAPE in companions
        )
        block = fused_block(self.lowered, self.control, self.multi_use, companions)
        self.grouping = Grouping(block, self.lowered.counts, rows=self.settings["rows"])
        self.groups: list[Group] = []
        self.refusals: list[tuple[Node, str]] = [*self.lowered.reasons.items()]
        for group in self.grouping.groups():
            if group.is_worth_a_kernel:
                self.groups.append(group)
            elif group.computes:
                first = next(iter(group.nodes))
                self.refusals.append((first, f"single-operator: {first.op} alone"))
        self.refusals += self._unfused_edges()

    def _underivable(self) -> dict[Node, str]:
        """Return nodes whose lowering needs sizes that only the model states.

        A kernel knows the body of its group and the inputs' ranks.
        """
        results: dict[Node, str] = {}
        for group in self.groups:
            if any(node.op in _SIZED for node in group.nodes):
                region = Region.of_nodes(list(group.nodes))
                if isinstance(region, Region):
                    try:
                        derive(*_as_function(region, operands(region)[0], region.outputs))
                    except Refused as refused:
                        place = refused.refusal.subject  # of the node in the body
                        if isinstance(place, int):
                            results[region.nodes[place]] = str(refused)
        return results

    def _unfused_edges(self) -> list[tuple[Node, str]]:
        """Return the operands that connect two groups, each with the refusal."""
        results: list[tuple[Node, str]] = []
        block, grouping = self.grouping.block, self.grouping
        for op in block.ops:
            if is_boundary(op) or not op.origins:
                continue
            node = op.origins[-1]
            rows = {operand.index: refusal for operand, refusal in grouping.refusals.get(op, ())}
            for operand, refusal in block.refusals.get(op, ()):
                producer = block.made_by.get(operand.value)  # it may have been fused since
                if producer is None or (
                    not is_boundary(producer)
                    and grouping.group_of(producer) is grouping.group_of(op)
                ):
                    continue
                reason = (
                    rows.get(operand.index)
                    if refusal.key in {"control", "producer-not-parallel"}
                    else None
                )
                results.append((node, str(reason or refusal)))
        return results


def take_all(node: Node) -> str | None:
    """Leave no node alone."""
    del node


@contextmanager
def gc_disabled() -> Generator[None]:
    """Turn Python's collector off while a plan lives."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def companions_named(text: str, default: Sequence[str] = GROUP_COMPANIONS) -> tuple[str, ...]:
    """The companions of a comma-separated list; ``-name`` takes one from the default.

    ``collapse-reshapes`` takes the place of ``expand-reshapes``, its reverse.

    Raises:
        ControlError: one is unknown, or both of these are named.
    """
    arguments = [part.strip() for part in text.split(",") if part.strip()]
    for name in arguments:
        if name.removeprefix("-") not in ALL_COMPANIONS:
            raise ControlError(unknown("companion", name.removeprefix("-"), ALL_COMPANIONS))
    added = [name for name in arguments if not name.startswith("-")]
    dropped = {name[1:] for name in arguments if name.startswith("-")}
    if MERGING in added and EXPANSION in added:
        raise ControlError(f"companions {EXPANSION} and {MERGING} undo each other: name one")
    if MERGING in added:
        dropped.add(EXPANSION)
    return tuple([name for name in (*default, *added) if name not in dropped])


class FuseElementwisePass(FusionBasePass):
    """Fuse element-wise, broadcast, movement and reduction operators by their indexing maps.

    a, b → Add, Softmax   ==>   a, b → gehost.linalg::Add_Softmax_<hash>
    """

    shape_proven = True  # the body has the same nodes

    def __init__(
        self,
        controls: Mapping[str, Control] | None = None,
        on_plan: Callable[[Plan], object] = lambda _plan: None,
    ) -> None:
        """``on_plan`` gets the groups of each graph, before they are replaced."""
        self._controls = controls or {}
        self._on_plan = on_plan
        self._names: dict[tuple[Any, ...], str] = {}

    def Run(self, graph: Graph, context: CustomPassContext) -> Status | bool | None:
        """Replace each group of one graph."""
        inline_calls(graph, context)
        state_splits(graph, context)
        with gc_disabled():  # the plan is freed inside: a collection would visit all of it
            plan = Plan(graph, context.options, self._controls)
            self._on_plan(plan)
            return self._replace_all(graph, plan, context)

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """A chain with a broadcast, and a reduction with its reader."""
        for lines in (
            "d = Sub (x, b) e = Exp (d) y = Tanh (e)",
            "d = Mul (x, b) m = ReduceMean <axes = [1]> (d) s = Sub (d, m) y = Sigmoid (s)",
        ):
            yield onnx.parser.parse_model(
                '<ir_version: 8, opset_import: ["": 17]> g (float[3,4] x, float[4] b) '
                f"=> (float[3,4] y) {{ {lines} }}"
            )

    def _replace_all(self, graph: Graph, plan: Plan, context: CustomPassContext) -> Status:
        for node, reason in plan.refusals:
            context.refuse(node, reason)
        new_nodes: list[Node] = []
        inlined: dict[Tensor, None] = {}
        duplicate = context.options["multi_use"] == "duplicate"
        for group in plan.groups:
            new = self._replace(group, context, inlined, duplicate=duplicate)
            if new is not None:
                new_nodes.append(new)
        _merge_equal(graph, new_nodes)
        _remove_unread(inlined)
        return SUCCESS if new_nodes else NOT_CHANGED

    def _replace(
        self,
        group: Group,
        context: CustomPassContext,
        inlined: dict[Tensor, None],
        *,
        duplicate: bool,
    ) -> Node | None:
        nodes = list(group.nodes)
        region = Region.of_nodes(nodes)
        if isinstance(region, Refusal):
            context.refuse(nodes[-1], region.reason)
            return None
        inputs, content = operands(region)
        if not inputs:
            context.refuse(region.last, "constant: it reads no tensor")
            return None
        outputs = region.results if duplicate else region.outputs
        try:
            name = self._name(region, inputs, outputs)
        except Refused as refused:
            context.refuse(region.last, str(refused))
            return None
        result = context.replace(
            region, _call(name, region, inputs, outputs), keep_shared=duplicate
        )
        if isinstance(result, Refusal):
            return None
        inlined.update(dict.fromkeys(content))
        return result[0] if result else None

    def _name(self, region: Region, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> str:
        """``gehost.linalg::<Kernel>_<hash>``; ``Refused`` if it cannot be derived."""
        body, signature = _as_function(region, inputs, outputs)
        key = (body.key(), *signature)
        if key not in self._names:
            self._names[key] = f"{DOMAIN}::{derive(body, signature).name}"
        return self._names[key]


def _as_function(
    region: Region, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> tuple[Body, list[Signature]]:
    """Return a region's body and the types of its inputs; ``Refused`` if a rank is unknown."""
    signature: list[Signature] = []
    for value in inputs:
        entry = Signature.of(value.type)
        if entry is None:
            raise Refused("operand-unranked", value.name)
        signature.append(entry)
    return Body.of_nodes(region.nodes, inputs, outputs), signature


def operands(region: Region) -> tuple[list[Tensor], list[Tensor]]:
    """The inputs of the new node, and what its body holds.

    Inputs are in the order of their first reader; the body holds constants.
    """
    inside, content = dict[Tensor, None](), dict[Tensor, None]()
    results = {value for node in region.nodes for value in node.outputs}
    for node in region.nodes:
        parameters = PARAMETERS.get(node.op, ())
        for slot, value in enumerate(node.inputs):
            if value is None or value in results:
                continue
            if value.is_constant and (slot in parameters or splat_of(value) is not None):
                content[value] = None
            else:
                inside[value] = None
    for value in inside:  # read as data too
        content.pop(value, None)
    return list(inside), list(content)


def _call(
    name: str, region: Region, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> EsGraph:
    builder = EsGraphBuilder(name)
    placeholders = builder.CreateInputs(len(region.inputs))
    places = {value: place for place, value in enumerate(region.inputs)}
    results = es.op(name)(
        *[placeholders[places[value]] for value in inputs], num_outputs=len(outputs)
    )
    return builder.BuildAndReset([results] if len(outputs) == 1 else list(results))


def _merge_equal(graph: Graph, new_nodes: Sequence[Node]) -> None:
    """Keep one of the nodes that compute the same."""
    first: dict[tuple[Any, ...], Node] = {}
    for node in new_nodes:
        if not node.in_graph:
            continue
        retained = first.setdefault((node.op, node.inputs), node)
        if retained is node or any(
            value is not None and value.is_graph_output for value in node.outputs
        ):
            continue
        for old, new in zip(node.outputs, retained.outputs, strict=True):
            if old is not None and new is not None:
                graph.redirect(old, new)
        graph.remove_node(node)


def _remove_unread(values: Mapping[Tensor, None]) -> None:
    """Remove constants that only bodies hold now."""
    for value in values:
        if value.readers:
            continue
        if (
            value.producer is not None
            and value.producer.op == "Constant"
            and value.producer.in_graph
        ):
            value.graph.remove_node(value.producer)
        elif value.initializer is not None and not value.is_input:
            value.graph.remove_initializer(value)


# -- registration
# --------------------------------------------------------------------------------------------------


class _Checked(PassOption):
    """An option whose text names something.

    The name is looked up as soon as it is set.
    """

    def __init__(self, name: str, default: str, help_: str, look_up: Any) -> None:
        object.__setattr__(self, "_look_up", look_up)
        super().__init__(name, str, default, help_)

    def convert(self, argument: Any) -> Any:
        """Return the text, if it names something.

        ``ValueError`` with the nearest names if not.
        """
        text = super().convert(argument)
        self._look_up(text)  # type: ignore[attr-defined]
        return text


def options(controls: Mapping[str, Control]) -> tuple[PassOption, ...]:
    """The options of ``--set FuseElementwisePass.NAME=VALUE``."""
    return (
        _Checked(
            "control",
            "one-use",
            "which legal fusions are done: one-use, always, cost, max-operands=N, …",
            partial(control_named, more=controls),
        ),
        _Checked(
            "multi_use",
            "refuse",
            "other readers of a producer: refuse, duplicate or share",
            multi_use_named,
        ),
        _Checked(
            "companions", "", "companion patterns to add, or -name to leave out", companions_named
        ),
        PassOption("rows", bool, True, "join loops over the same rows into one kernel"),  # noqa: FBT003
        PassOption("leave_alone", bool, True, "leave to ONNX Runtime the nodes that it fuses"),  # noqa: FBT003
    )


_MARK = "__gehost_linalg_control__"
_collected: WeakKeyDictionary[PassRegistry, dict[str, Control]] = WeakKeyDictionary()
"""Control functions of vendor files, for each host's passes."""


def control_function(name: str) -> Any:
    """Register a control function of a vendor file: ``@control_function("small-tensors")``.

    The function gets the operand (producer, consumer, index) and returns True or the reason for not
    fusing.
    """

    def mark(function: Control) -> Control:
        if not callable(function):
            raise VendorError(f"control_function({name!r}) wants a function, got {function!r}")
        setattr(function, _MARK, name)
        return function

    return mark


def collect(module: ModuleType, registry: PassRegistry) -> None:
    """Take the control functions that a vendor file marks."""
    cached = _collected.setdefault(registry, {})
    for function in vars(module).values():
        name = getattr(function, _MARK, None)
        if isinstance(name, str) and getattr(function, "__module__", "") == module.__name__:
            try:
                control_named(name)
            except ControlError:
                if cached.get(name, function) is not function:
                    raise VendorError(
                        f"a control function called {name!r} exists already",
                        where=module.__file__,
                    ) from None
                cached[name] = function
            else:
                raise VendorError(
                    f"a control function called {name!r} exists already", where=module.__file__
                )


def controls_of(registry: PassRegistry) -> Mapping[str, Control]:
    """Return the control functions of a host's vendors."""
    return _collected.get(registry, {})


_watching: WeakKeyDictionary[PassRegistry, list[Plan]] = WeakKeyDictionary()
"""Lists that take the plans of a host's compiles."""


def plans_made_by(registry: PassRegistry) -> list[Plan]:
    """Return a list to which the host's next compiles add their plans."""
    return _watching.setdefault(registry, [])


def _keep_plan(registry: ref[PassRegistry], plan: Plan) -> None:
    """Weakly, as the registry holds the pass that calls this."""
    host = registry()
    if host is not None and host in _watching:
        _watching[host].append(plan)


def register(registry: PassRegistry) -> None:
    """Add the pass, off unless a switch turns it on."""
    controls, keep_plan = controls_of(registry), partial(_keep_plan, ref(registry))
    line = FuseElementwisePass.Run.__code__.co_firstlineno
    registry.add(
        PassSpec(
            NAME,
            CustomPassStage.kAfterOriginGraphOptimize,
            f"{Path(__file__)}:{line}",
            "fusion",
            lambda: FuseElementwisePass(controls, keep_plan),
            default=False,
            options=options(controls),
        )
    )
