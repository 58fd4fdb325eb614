"""Translates a module to ONNX.

The entry becomes the graph, fusions become model-local functions, calls are inlined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import onnx

from gehost import Refusal, Refused, UsageError
from gehost_hlo import translate
from gehost_hlo.attributes import AttributeFormError, metadata
from gehost_hlo.context import Context, Settings, array_shape
from gehost_hlo.emit import DOMAIN, Body, Names, Tensor, Value, leaves, value_info
from gehost_hlo.errors import UntranslatableError
from gehost_hlo.literals import ONNX
from gehost_hlo.module import HloComputation, HloInstruction, HloModule, Operand, Shape
from gehost_hlo.translate import devices
from gehost_hlo.translate.control import finish, packed

OPSET = 21
IR_VERSION = 10
_DEPTH = 60
"""Computations that call each other, at most."""
_INLINED = 200_000
"""Instructions that calls may be inlined to, unless the text itself has a twentieth of it."""
_TIMES = 20


def import_module(
    module: HloModule, settings: Settings | None = None, entry: HloComputation | None = None
) -> onnx.ModelProto:
    """Translate a module to an ONNX model of opset 21.

    Inputs and outputs are those of the entry, tuples flattened, and carry the names of its
    instructions; so does every tensor that is the result of an instruction. ``op_name`` is in the
    nodes' metadata as ``hlo.op_name``.

    Args:
        module: as ``parse`` returns it.
        settings: options; None for the defaults.
        entry: a computation to translate in place of the module's entry.

    Raises:
        UntranslatableError: instructions have no translation; the error has all of them.
        UsageError: calls would be inlined to too many instructions.
    """
    return _Importer(module, settings or Settings()).model(entry or module.entry)


_WRITTEN_OUT = "; the text after XLA's passes has arithmetic in its place"


class _Importer:
    def __init__(self, module: HloModule, settings: Settings) -> None:
        self.module = module
        self.settings = settings
        self._computations = {computation.name: computation for computation in module.computations}
        self._functions: dict[str, onnx.FunctionProto] = {}
        self._problems: dict[tuple[str, str, Refusal], None] = {}
        count = sum(len(computation.instructions) for computation in module.computations)
        self._most = max(_INLINED, _TIMES * count)
        self._translated = 0
        """Instructions so far, those of a computation for each of its calls."""

    def model(self, entry: HloComputation) -> onnx.ModelProto:
        reserved = frozenset(instruction.name for instruction in entry.instructions)
        body = Body(Names(reserved=reserved))
        c = self._context(body, entry, "")
        inputs, args = self._parameters(c, entry)
        value = self._translate(c, args)
        outputs = self._outputs(c, entry, value, inputs)
        if not outputs and not self._problems:
            refusal = Refusal("unsupported", "it makes no array, and an ONNX model needs an output")
            self._problems[entry.name, entry.root.name, refusal] = None
        if self._problems:
            raise UntranslatableError(list(self._problems))
        graph = body.graph(self.module.name or entry.name, inputs, outputs)
        model = onnx.ModelProto(ir_version=IR_VERSION, producer_name="gehost_hlo", graph=graph)
        model.opset_import.add(domain="", version=OPSET)
        model.functions.extend(self._functions.values())
        if self._functions or body.has_domain(DOMAIN):
            model.opset_import.add(domain=DOMAIN, version=1)
        return model

    # Interfaces

    def _parameters(
        self, c: Context, computation: HloComputation
    ) -> tuple[list[Tensor], list[Value]]:
        """Return the inputs, and the value of each parameter.

        A tuple becomes an input for each of its arrays.
        """
        inputs: list[Tensor] = []
        args: list[Value] = []
        for parameter in computation.parameters:
            if parameter.shape is None:
                refusal = Refusal("missing", "its shape is not written")
                self._refuse(computation, parameter, refusal)
                args.append(Tensor("refused", "", (), ()))
                continue
            name = c.body.names.choose(parameter.name, "")
            shapes = parameter.shape.leaves()
            own: list[Tensor] = []
            for index, shape in enumerate(shapes):
                try:
                    array_shape(shape)
                except Refused as error:
                    self._refuse(computation, parameter, error.refusal)
                leaf = (
                    c.body.names.choose(f"{name}/{index}", "")
                    if parameter.shape.elements is not None
                    else name
                )
                dims = _known(shape.dimensions)
                own.append(Tensor(leaf, shape.type, dims, dims))
            inputs += own
            args.append(packed(parameter.shape, own))
        return inputs, args

    def _outputs(
        self, c: Context, computation: HloComputation, value: Value, inputs: Sequence[Tensor]
    ) -> list[Tensor]:
        """Return the outputs.

        A result that is an input, a constant or an output already gets an Identity.
        """
        root = computation.root
        names = c.body.names
        own = {names.resolve(output) for op in c.body.ops for output in op.outputs}
        names_in_use = {tensor.name for tensor in inputs}
        outputs: list[Tensor] = []
        c.body.start(names.choose(f"{root.name}/outputs", ""), {})
        for index, leaf in enumerate(leaves(value)):
            if leaf.type not in ONNX:
                continue  # refused already
            is_array = isinstance(value, Tensor)
            preferred = root.name if is_array else f"{root.name}/{index}"
            if preferred in names_in_use:  # the root is a parameter
                preferred = names.choose(f"{root.name}/output", "")
            if leaf.constant is not None:  # its own name is that of the output
                leaf = Tensor("", leaf.type, leaf.dims, leaf.stored, leaf.constant)
            name = names.resolve(c.body.full(leaf))
            if name not in own or name in names_in_use or (is_array and name != preferred):
                place = len(c.body.ops)
                (copy,) = c.body.op("Identity", [name])
                name = preferred if is_array else names.choose(preferred, "")
                names.renamed[copy] = name
                c.body.ops[place].name = name
            names_in_use.add(name)
            outputs.append(Tensor(name, leaf.type, leaf.dims, leaf.dims))
        c.body.prune(tensor.name for tensor in outputs)
        return outputs

    # Computations

    def _context(
        self, body: Body, computation: HloComputation, scope: str, active: tuple[str, ...] = ()
    ) -> Context:
        return Context(
            module=self.module,
            settings=self.settings,
            body=body,
            computation=computation,
            scope=scope,
            call=self._call,
            function=self._function,
            find=self._find,
            instruction=self._instruction,
            call_on_all=self._call_on_all,
            active=(*active, computation.name),
        )

    def _find(self, name: str) -> HloComputation:
        if not name:
            raise Refused("missing", "it does not name the computation that it calls")
        computation = self._computations.get(name.removeprefix("%"))
        if computation is None:
            raise Refused(
                "missing", f'the computation "{name.removeprefix("%")}" is not in the text'
            )
        return computation

    def _call(
        self,
        c: Context,
        computation: HloComputation,
        args: Sequence[Value],
        scope: str,
        batch: tuple[int, ...] | None,
    ) -> Value:
        """Translate a computation into the body of ``c``.

        Names that are taken get ``scope`` in front.
        """
        _check_call(c, computation, args, batch)
        position = c.body.position()
        inner = replace(
            c,
            computation=computation,
            scope=scope,
            batch=batch,
            active=(*c.active, computation.name),
        )
        value = self._translate(inner, args)
        c.body.resume(position)
        return value

    def _call_on_all(
        self, c: Context, computation: HloComputation, rows: list[list[Value]], scope: str
    ) -> list[Value]:
        """Translate a computation for the operands of each device; returns their results."""
        for args in rows:
            _check_call(c, computation, args, None)
        position = c.body.position()
        inner = replace(
            c,
            computation=computation,
            scope=scope,
            devices=len(rows),
            active=(*c.active, computation.name),
        )
        shards = [list(column) for column in zip(*rows, strict=True)]
        value = self._translate(inner, rows[0], shards)
        c.body.resume(position)
        return inner.shards.get(computation.root.name, [value] * len(rows))

    def _translate(
        self, c: Context, args: Sequence[Value], shards: Sequence[list[Value]] = ()
    ) -> Value:
        """Translate the instructions; ``shards`` are the arguments on each device."""
        self._translated += len(c.computation.instructions)
        if self._translated > self._most:
            raise UsageError(
                f"calls of {c.computation.name} and others become more than {self._most:,} "
                "instructions when they are inlined",
                hint="import a smaller part with --computation",
            )
        c.defined = {instruction.name: instruction for instruction in c.computation.instructions}
        c.shards = {}
        values: dict[str, Value] = {}
        root: Value = ()
        for instruction in c.computation.instructions:
            if instruction.opcode == "parameter":
                value = args[int(instruction.literal)]
                if shards:
                    c.shards[instruction.name] = shards[int(instruction.literal)]
            else:
                operands = [
                    self._operand(c, operand, values)
                    for operand in instruction.operands
                    if operand.literal is None
                ]
                value = self._on_devices(c, instruction, operands)
            values[instruction.name] = value
            if instruction.is_root:
                root = value
        return root

    def _operand(self, c: Context, operand: Operand, values: dict[str, Value]) -> Value:
        inner = operand.instruction
        if inner is None:
            return values[operand.name]
        operands = [
            self._operand(c, item, values) for item in inner.operands if item.literal is None
        ]
        return self._instruction(c, inner, operands)

    def _on_devices(self, c: Context, instruction: HloInstruction, args: list[Value]) -> Value:
        """Translate an instruction, inside of a shard_map for each device."""
        target = instruction.attributes.get("custom_call_target", "").strip('"')
        if target in devices.LEAVES or not (
            ((c.devices or c.shards) and instruction.opcode in devices.COLLECTIVES)
            or any(operand.name in c.shards for operand in instruction.operands)
        ):
            return self._instruction(c, instruction, args)
        try:
            c.shards[instruction.name] = devices.on_all_devices(c, instruction, args)
        except (Refused, AttributeFormError) as error:
            self._refuse(c.computation, instruction, _refusal(error))
            return _placeholder(c, instruction)
        return c.shards[instruction.name][0]

    def _instruction(self, c: Context, instruction: HloInstruction, args: list[Value]) -> Value:
        name = c.body.names.choose(instruction.name or instruction.opcode, c.scope)
        place = c.body.start(name, _metadata(instruction))
        translator = translate.TABLE.get(instruction.opcode)
        if c.batch is not None and translator is not None:
            translator = translate.SCALAR_TABLE.get(instruction.opcode, _refuse_in_scalars)
        try:
            if translator is None:
                hint = _WRITTEN_OUT if instruction.opcode == "rng-bit-generator" else ""
                raise Refused("unsupported", f"{instruction.opcode} is not translated{hint}")
            value = translator(c, instruction, args)
            _check_result(c, instruction, value)
        except (Refused, AttributeFormError) as error:
            if not any(
                leaf.type not in ONNX for arg in args for leaf in leaves(arg)
            ):  # else the cause is reported already
                self._refuse(c.computation, instruction, _refusal(error))
            return _placeholder(c, instruction)
        c.body.finish(place, value, name)
        return value

    def _refuse(
        self, computation: HloComputation, instruction: HloInstruction, refusal: Refusal
    ) -> None:
        self._problems[computation.name, instruction.name, refusal] = None

    # Fusions

    def _function(self, c: Context, computation: HloComputation, args: Sequence[Value]) -> None:
        """Translate a fusion's computation to the model-local function of its name."""
        _check_call(c, computation, args, None)
        if computation.name in self._functions:
            return
        reserved = frozenset(instruction.name for instruction in computation.instructions)
        body = Body(Names(reserved=reserved), constants_as_nodes=True)
        inner = self._context(body, computation, "", c.active)
        inputs, parameters = self._parameters(inner, computation)
        outputs = finish(inner, leaves(self._translate(inner, parameters)), inputs)
        function = onnx.FunctionProto(domain=DOMAIN, name=computation.name)
        function.input.extend([tensor.name for tensor in inputs])
        function.output.extend([tensor.name for tensor in outputs])
        function.node.extend(body.nodes())
        function.value_info.extend(value_info(name, *type_) for name, type_ in body.types.items())
        function.opset_import.add(domain="", version=OPSET)
        function.opset_import.add(domain=DOMAIN, version=1)
        self._functions[computation.name] = function


def _refuse_in_scalars(_c: Context, i: HloInstruction, _args: list[Value]) -> Value:
    raise Refused(
        "unsupported", f"{i.opcode} inside a computation that is applied to single elements"
    )


def _refusal(error: Refused | AttributeFormError) -> Refusal:
    return error.refusal if isinstance(error, Refused) else Refusal("invalid", str(error))


def _metadata(instruction: HloInstruction) -> dict[str, str]:
    fields = metadata(instruction)
    entries = {
        f"hlo.{name}": fields[name] for name in ("op_name", "stack_frame_id") if fields.get(name)
    }
    for attribute in ("kind", "sharding"):
        if attribute in instruction.attributes:
            entries[f"hlo.{attribute}"] = instruction.attributes[attribute]
    return entries


def _fits(shape: Shape, value: Value, batch: tuple[int, ...] | None) -> bool:
    expected = [
        (leaf.type, leaf.dimensions if batch is None else (*batch, *leaf.dimensions))
        for leaf in shape.leaves()
    ]
    return expected == [(leaf.type, leaf.dims) for leaf in leaves(value)]


def _check_call(
    c: Context, computation: HloComputation, args: Sequence[Value], batch: tuple[int, ...] | None
) -> None:
    """Refuse a call of itself, and arguments that do not fit the parameters."""
    if computation.name in c.active:
        raise Refused("invalid", f"{computation.name} calls itself")
    if len(c.active) > _DEPTH:
        raise Refused("unsupported", "calls are nested too deep")
    parameters = computation.parameters
    if len(parameters) != len(args):
        raise Refused(
            "invalid",
            f"{computation.name} takes {len(parameters)} operands, it is called with {len(args)}",
        )
    for parameter, arg in zip(parameters, args, strict=True):
        if parameter.shape is not None and not _fits(parameter.shape, arg, batch):
            raise Refused(
                "invalid",
                f'parameter "{parameter.name}" of {computation.name} is {parameter.shape}, it '
                "is called with another shape",
            )


def _check_result(c: Context, instruction: HloInstruction, value: Value) -> None:
    """Compare a result with the shape that the instruction states."""
    shape = instruction.shape
    if shape is None:
        return
    if instruction.attributes.get("custom_call_target") == '"SetBound"':
        # f32[<=4]: it returns its operand, whose sizes are numbers
        shape = msgspec.structs.replace(shape, dynamic=())
    for leaf in shape.leaves():
        array_shape(leaf)
    if not _fits(shape, value, c.batch):
        actual = ", ".join(f"{leaf.type}{list(leaf.dims)}" for leaf in leaves(value))
        raise Refused("invalid", f"its result is {instruction.shape}, its operands make {actual}")


def _placeholder(c: Context, instruction: HloInstruction) -> Value:
    """Return a value in place of a refused one.

    The other instructions are then checked, too.
    """
    if instruction.shape is None:
        return Tensor("refused", "", (), ())
    batch = c.batch or ()
    dims = [(*batch, *_known(leaf.dimensions)) for leaf in instruction.shape.leaves()]
    tensors = [
        Tensor("refused", leaf.type, shape, shape)
        for leaf, shape in zip(instruction.shape.leaves(), dims, strict=True)
    ]
    return packed(instruction.shape, tensors)


def _known(dims: Sequence[int]) -> tuple[int, ...]:
    """Return 1 for each size ``?``, whose array is refused."""
    return tuple(size if size >= 0 else 1 for size in dims)
