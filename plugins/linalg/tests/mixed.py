"""Random functions with named operations, loops and conditions between the Generics of ``dags``."""

from __future__ import annotations

from random import Random

from gehost_linalg.affine import AffineMap, Dim
from gehost_linalg.generic import (
    PARALLEL,
    REDUCTION,
    Arg,
    Generic,
    Literal,
    Named,
    Opaque,
    Payload,
    Res,
    ScalarOp,
    Value,
    verify,
)
from gehost_linalg.mlir import Function

from .dags import SIZES, UNARY, DagMaker

MOST_DEPTH = 2
"""Regions in regions."""


class MixedMaker(DagMaker):
    """Adds an operation of any kind; what a region makes is read in it alone."""

    def __init__(self, random: Random) -> None:
        super().__init__(random, reshapes=0.2)
        self.count = 0
        self.bounds = [Value(name, "index", kind="scalar") for name in ("low", "high", "step")]
        self.go = Value("go", "i1", kind="scalar")

    def function(self, ops: int, dead: float = 0.15) -> Function:
        for number in range(self.random.randint(2, 4)):
            rank = self.random.choice((1, 2, 2, 3))
            self._argument(f"a{number}", [self.random.choice(SIZES) for _ in range(rank)])
        self._operations(ops, 0)
        read = {value for op in self.ops for value in op.operands}
        chosen = [item for item in self.made if item not in read or self.random.random() < 0.12]
        unread = [item for item in chosen if item in read or self.random.random() >= dead]
        arguments = [*self.arguments, *self.bounds, self.go]
        return Function("f", arguments, self.ops, unread or chosen or self.made[-1:])

    def _operations(self, count: int, depth: int) -> None:
        for _ in range(count):
            self.count += 1
            kind = self.random.random()
            if kind < 0.18 and depth < MOST_DEPTH and self.made:
                self._region(depth)
            elif kind < 0.45:
                self._named_operation()
            elif kind < 0.52:
                self._part_or_whole()
            else:
                self._generic(self.count)
            if self.random.random() < self.reshapes:
                self._reshape(self.count)

    # -- regions

    def _region(self, depth: int) -> None:
        """``scf.for`` that carries a tensor, or ``scf.if`` that makes one."""
        number, carried = self.count, self._chosen()
        shape = carried.shape or ()
        result = Value(f"s{number}", "f32", shape)
        kind = self.random.random()
        if kind < 0.4:
            index = Value(f"i{number}", "index", kind="scalar")
            inside = Value(f"c{number}", "f32", shape)
            start = Opaque("scf.for", (*self.bounds, carried), (index, inside), part="open")
            self._body(start, inside, depth)
            self.ops.append(Opaque("scf.for", (), (result,), part="close"))
        elif kind < 0.6:
            before, inside = Value(f"b{number}", "f32", shape), Value(f"c{number}", "f32", shape)
            self.ops.append(Opaque("scf.while", (carried,), (before,), part="open"))
            self.ops.append(Opaque("scf.condition", (self.go, before), ()))
            self._body(Opaque("scf.while", (), (inside,), part="next"), inside, depth)
            self.ops.append(Opaque("scf.while", (), (result,), part="close"))
        else:
            self._body(Opaque("scf.if", (self.go,), (), part="open"), carried, depth)
            self._body(Opaque("scf.if", (), (), part="next"), carried, depth)
            self.ops.append(Opaque("scf.if", (), (result,), part="close"))
        self.values.append(result)
        self.made.append(result)

    def _body(self, start: Opaque, result_like: Value, depth: int) -> None:
        outer = list(self.values), list(self.made)
        self.ops.append(start)
        self.values.append(result_like)
        self.made.append(result_like)
        self._operations(self.random.randint(1, 3), depth + 1)
        same = [argument for argument in self.made if argument.type_text == result_like.type_text]
        self.ops.append(Opaque("scf.yield", (same[-1],), ()))
        self.values, self.made = [*outer[0]], [*outer[1]]
        entries = set(self.values)
        self.values += [argument for argument in self.arguments if argument not in entries]

    # -- operations that are carried through

    def _part_or_whole(self) -> None:
        """A slice of a tensor, or a concatenation with itself."""
        random, source = self.random, self._chosen()
        sizes = [int(size or 0) for size in source.shape or ()]
        if not sizes:
            return
        axis, name = random.randrange(len(sizes)), f"t{self.count}"
        if random.random() < 0.6:
            begins = [random.randint(0, size - 1) for size in sizes]
            sizes = [
                random.randint(1, size - begin) for size, begin in zip(sizes, begins, strict=True)
            ]
            result = Value(name, "f32", sizes)
            listing = ",".join(map(str, begins))
            self.ops.append(Opaque("tensor.extract_slice", (source,), (result,), listing))
        else:
            sizes[axis] *= 2
            result = Value(name, "f32", sizes)
            self.ops.append(Opaque("tensor.concat", (source, source), (result,), axis))
        self.values.append(result)
        self.made.append(result)

    # -- named operations

    def _named_operation(self) -> None:
        random, source = self.random, self._chosen()
        sizes = [int(size or 0) for size in source.shape or ()]
        kinds = ["copy", "map", "elementwise", "broadcast"]
        kinds += ["transpose", "reduce"] if sizes else []
        kinds += ["matmul", "matmul", "fill"] if len(sizes) == 2 else ["fill"]
        kind = random.choice(kinds)
        rank = len(sizes)
        identity = AffineMap(rank, [Dim(loop) for loop in range(rank)])
        computes = ScalarOp(random.choice(UNARY), (Arg(0),), "f32")
        payload = Payload((computes,), (Res(0),))
        maps, named = [identity, identity], Named(f"linalg.{kind}")
        if kind == "fill":
            self._fill(source)
            return
        if kind == "elementwise":
            named = Named("linalg.elementwise", f" <{computes.name.partition('.')[2]}>")
        elif kind == "map":
            named = named._replace(has_body=True)
        elif kind in {"copy", "broadcast", "transpose"}:
            payload = Payload((), (Arg(0),))
        if kind == "matmul":
            self._matmul(source, sizes)
            return
        if kind == "reduce":
            self._reduce(source, sizes)
            return
        if kind == "transpose":
            permutation = random.sample(range(rank), rank)
            named = Named("linalg.transpose", "", f" permutation = {permutation}")
            maps[0] = AffineMap(rank, [Dim(permutation.index(axis)) for axis in range(rank)])
            sizes = [sizes[axis] for axis in permutation]
        elif kind == "broadcast":
            axis = random.randint(0, rank)
            sizes.insert(axis, random.choice(SIZES))
            named = Named("linalg.broadcast", "", f" dimensions = [{axis}]")
            whole = [Dim(loop) for loop in range(rank + 1)]
            maps = [
                AffineMap(rank + 1, [*whole[:axis], *whole[axis + 1 :]]),
                AffineMap(rank + 1, whole),
            ]
        out = Value(f"e{self.count}", "f32", sizes, kind="empty")
        self._add((source,), out, maps, [PARALLEL] * len(sizes), payload, named)

    def _fill(self, like: Value) -> None:
        number = float(self.random.randint(1, 9))
        filled = Value(
            f"f{self.count}", "f32", like.shape, kind="fill", fill=Literal(number, "f32")
        )
        self.values.append(filled)
        self.made.append(filled)

    def _matmul(self, left: Value, sizes: list[int]) -> None:
        columns = self.random.choice(SIZES)
        right = self._argument(f"w{self.count}", [sizes[1], columns])
        out = self._argument(f"m{self.count}", [sizes[0], columns])
        maps = [AffineMap(3, [Dim(a), Dim(b)]) for a, b in ((0, 2), (2, 1), (0, 1))]
        multiply = ScalarOp("arith.mulf", (Arg(0), Arg(1)), "f32")
        add = ScalarOp("arith.addf", (Arg(2), Res(0)), "f32")
        kinds = [PARALLEL, PARALLEL, REDUCTION]
        payload = Payload((multiply, add), (Res(1),))
        self._add((left, right), out, maps, kinds, payload, Named("linalg.matmul"))

    def _reduce(self, source: Value, sizes: list[int]) -> None:
        rank, axis = len(sizes), self.random.randrange(len(sizes))
        rest = [loop for loop in range(rank) if loop != axis]
        out = self._argument(f"m{self.count}", [sizes[loop] for loop in rest])
        maps = [
            AffineMap(rank, [Dim(loop) for loop in range(rank)]),
            AffineMap(rank, [Dim(loop) for loop in rest]),
        ]
        kinds = [REDUCTION if loop == axis else PARALLEL for loop in range(rank)]
        body = Payload((ScalarOp("arith.maximumf", (Arg(0), Arg(1)), "f32"),), (Res(0),))
        named = Named("linalg.reduce", "", f" dimensions = [{axis}]", has_body=True)
        self._add((source,), out, maps, kinds, body, named)

    def _add(
        self,
        ins: tuple[Value, ...],
        out: Value,
        maps: list[AffineMap],
        kinds: list[str],
        payload: Payload,
        named: Named,
    ) -> None:
        result = Value(f"n{self.count}", "f32", out.shape)
        op = Generic(ins, (out,), tuple(maps), tuple(kinds), payload, (result,), named=named)
        verify(op)
        self.ops.append(op)
        self.values.append(result)
        self.made.append(result)


def mixed_function(seed: int) -> Function:
    """A function of 3 to 8 operations, each a Generic, a named operation or one with regions."""
    random = Random(seed)
    return MixedMaker(random).function(random.randint(3, 8))
