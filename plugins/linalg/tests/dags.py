"""Random DAGs of Generics: permuted, broadcast, strided, constant and reduced maps, indices, several results and readers."""

from __future__ import annotations

from random import Random

import numpy as np

from gehost_linalg.affine import AffineMap, Binary, Const, Dim, Expr, binary
from gehost_linalg.generic import (
    INDEX,
    Arg,
    Generic,
    Op,
    Opaque,
    Payload,
    Ref,
    Res,
    ScalarOp,
    Value,
    verify,
)
from gehost_linalg.mlir import Function
from gehost_linalg.reshape import COLLAPSE, EXPAND

SIZES = (2, 3, 4, 5)
BINARY = ("arith.addf", "arith.mulf", "arith.subf", "arith.maximumf")
UNARY = ("math.exp", "math.erf", "math.tanh")  # MLIR folds negf of negf, absf of absf


class DagMaker:
    """Builds one random function."""

    def __init__(self, random: Random, *, reshapes: float = 0) -> None:
        """``reshapes``: the share of the operations with a split or a merge of axes behind them."""
        self.random = random
        self.reshapes = reshapes
        self.values: list[Value] = []
        self.arguments: list[Value] = []
        self.ops: list[Op] = []
        self.made: list[Value] = []

    def function(self, ops: int, dead: float = 0.15) -> Function:
        """``dead``: the share of the unread results that are no outputs."""
        random = self.random
        for number in range(random.randint(2, 4)):
            shape = [random.choice(SIZES) for _ in range(random.choice((0, 1, 2, 2, 2, 3)))]
            self._argument(f"a{number}", shape)
        for number in range(ops):
            self._generic(number)
            if random.random() < self.reshapes:
                self._reshape(number)
        read = {value for op in self.ops for value in op.operands}
        outputs = [value for value in self.made if value not in read or random.random() < 0.12]
        unread = [value for value in outputs if value in read or random.random() >= dead]
        return Function("f", self.arguments, self.ops, unread or outputs)

    def _argument(self, name: str, shape: list[int]) -> Value:
        value = Value(name, "f32", shape)
        self.arguments.append(value)
        self.values.append(value)
        return value

    def _chosen(self) -> Value:
        recent = self.made[-3:]
        return (
            self.random.choice(recent)
            if recent and self.random.random() < 0.7
            else self.random.choice(self.values)
        )

    def _map_of(self, shape: tuple[int, ...], extents: list[int]) -> list[Expr]:
        """How a value is read: bare loops that exist or are new, constants, strides, sums."""
        random, results = self.random, list[Expr]()
        for size in shape:
            kind = random.random()
            same = [loop for loop, extent in enumerate(extents) if extent == size]
            free = [loop for loop in same if Dim(loop) not in results]
            if kind < 0.05:
                results.append(Const(random.randrange(size)))
            elif kind < 0.10 and size > 2:
                step = 2
                results.append(
                    binary("*", Dim(self._loop((size + 1) // step, extents, results)), Const(step))
                )
            elif kind < 0.13 and size > 2:
                results.append(binary("+", Dim(self._loop(size - 1, extents, results)), Const(1)))
            elif same and kind < 0.16:
                results.append(Dim(random.choice(same)))
            elif free and (kind < 0.9 or len(extents) >= 4):
                results.append(Dim(random.choice(free)))
            else:
                extents.append(size)
                results.append(Dim(len(extents) - 1))
        return results

    def _loop(self, size: int, extents: list[int], results: list[Expr]) -> int:
        used = {
            loop
            for result in results
            for loop in ([result.index] if isinstance(result, Dim) else [])
        }
        same = [loop for loop, extent in enumerate(extents) if extent == size and loop not in used]
        if same and self.random.random() < 0.7:
            return self.random.choice(same)
        extents.append(size)
        return len(extents) - 1

    def _reshape(self, number: int) -> None:
        """Split an axis of a value, or merge two neighbours."""
        random, value = self.random, self._chosen()
        shape = [int(size or 0) for size in value.shape or ()]
        if not shape:
            return
        axis = random.randrange(len(shape))
        if len(shape) > 1 and random.random() < 0.5:
            axis = min(axis, len(shape) - 2)
            name, results = (
                COLLAPSE,
                [*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]],
            )
        else:
            parts = [first for first in range(1, shape[axis] + 1) if shape[axis] % first == 0]
            first = random.choice(parts)
            name, results = EXPAND, [*shape[:axis], first, shape[axis] // first, *shape[axis + 1 :]]
        few = min(len(shape), len(results))
        groups = [[at + (at > axis)] if at != axis else [at, at + 1] for at in range(few)]
        result = Value(f"r{number}", "f32", results)
        self.ops.append(Opaque(name, (value,), (result,), str(groups)))
        self.values.append(result)
        self.made.append(result)

    def _generic(self, number: int) -> None:
        random = self.random
        ins = [self._chosen() for _ in range(random.choice((1, 1, 2, 2, 3)))]
        extents: list[int] = []
        reads = [self._map_of(value.shape or (), extents) for value in ins]
        if random.random() < 0.08 and len(extents) < 4:  # a loop that only an out has
            extents.append(random.choice(SIZES))
        loops = len(extents)
        order = list(range(loops))
        if random.random() < 0.25:
            random.shuffle(order)
        kinds = ["parallel"] * loops
        if loops and random.random() < 0.3:
            for loop in random.sample(range(loops), random.randint(1, loops)):
                kinds[loop] = "reduction"
        if random.random() < 0.07 and loops:  # a constant with one value throughout
            axes = random.sample(range(loops), random.randint(0, loops))
            ins.append(
                Value(
                    f"k{number}",
                    "f32",
                    [extents[axis] for axis in axes],
                    constant=np.float32([42.5]).reshape((1,) * len(axes)),
                )
            )
            reads.append([Dim(axis) for axis in axes])
        reduces = "reduction" in kinds
        outs: list[Value] = []
        out_maps: list[list[Expr]] = []
        for out in range(random.choice((1, 1, 1, 2))):
            results: list[Expr] = [Dim(loop) for loop in order if kinds[loop] == "parallel"]
            if not reduces and results and random.random() < 0.12:
                results.pop(random.randrange(len(results)))
            if out == 1 and random.random() < 0.5:
                random.shuffle(results)
            if random.random() < 0.1:
                results.insert(random.randint(0, len(results)), Const(0))
            shape = [extents[read.index] if isinstance(read, Dim) else 1 for read in results]
            reads_out = reduces or random.random() < 0.08
            name = f"o{number}_{out}"
            outs.append(
                Value(name, "f32", shape, kind="empty")
                if not reads_out
                else self._argument(name, shape)
            )
            if not reads_out and random.random() < 0.1:
                outs[-1] = self._argument(name, shape)
            out_maps.append(results)
        maps = [AffineMap(loops, read) for read in (*reads, *out_maps)]
        if len({loop for map_ in maps for loop in map_.loops}) < loops:
            covered = sorted({loop for map_ in maps for loop in map_.loops})
            missing = [loop for loop in range(loops) if loop not in covered]
            shape = [extents[loop] for loop in missing]
            ins.append(self._argument(f"s{number}", shape))
            maps.insert(len(reads), AffineMap(loops, missing))
        payload = self._payload(ins, outs, loops)
        result = tuple(
            Value(f"v{number}_{out}", "f32", value.shape) for out, value in enumerate(outs)
        )
        op = Generic(tuple(ins), tuple(outs), tuple(maps), tuple(kinds), payload, result)
        verify(op)
        self.ops.append(op)
        self.values += result
        self.made += result

    def _payload(self, ins: list[Value], outs: list[Value], loops: int) -> Payload:
        random, ops = self.random, list[ScalarOp]()
        constants = [index for index, value in enumerate(ins) if value.constant is not None]
        args = [index for index in range(len(ins)) if index not in constants]
        used = [index for index in args if random.random() < 0.93] or args[:1]
        pool: list[Ref] = [Arg(index) for index in used]
        random.shuffle(pool)

        def add(
            name: str, *operands: Ref, dtype: str = "f32", attribute: str | Expr | None = None
        ) -> Ref:
            ops.append(ScalarOp(name, tuple(operands), dtype, attribute))
            return Res(len(ops) - 1)

        value = add(random.choice(UNARY), pool[0])
        for other in pool[1:]:
            value = add(
                random.choice(BINARY),
                *((value, other) if random.random() < 0.5 else (other, value)),
            )
        for index in constants:
            value = add("arith.addf", value, Arg(index))
        if loops and random.random() < 0.25:
            for loop in random.sample(range(loops), random.randint(1, min(2, loops))):
                index = add(INDEX, dtype="index", attribute=Dim(loop))
                cast = add("arith.index_cast", index, dtype="i32")
                value = add("arith.addf", value, add("arith.sitofp", cast, dtype="f32"))
        yields: list[Ref] = []
        for out, _ in enumerate(outs):
            result = value if out == 0 else add(random.choice(UNARY), value)
            if self._reads(outs[out]):
                result = add("arith.addf", Arg(len(ins) + out), result)
            yields.append(result)
        return Payload(tuple(ops), tuple(yields))

    def _reads(self, out: Value) -> bool:
        return out.kind != "empty"


def function_with_reshapes(seed: int) -> Function:
    """A function of 2 to 6 Generics with splits and merges of axes between them."""
    random = Random(seed)
    return DagMaker(random, reshapes=0.5).function(random.randint(2, 6))


def random_function(seed: int) -> Function:
    """A function of 2 to 6 Generics; every fourth has up to 9, and many dead results.

    Dead results decide about the order of visits.
    """
    random = Random(seed)
    if seed % 4 == 3:
        return DagMaker(random).function(random.randint(3, 9), dead=0.5)
    return DagMaker(random).function(random.randint(2, 6))


__all__ = ["Binary", "function_with_reshapes", "random_function"]
