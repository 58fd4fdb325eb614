"""Find attention: from its Softmax to q, k, v and the joined heads.

``q, kᵀ → MatMul → (Mul scale) → (Add mask) → Softmax → (Where IsNaN 0) → p;``
``p, v → MatMul → Transpose → Reshape``

All exporters write this; they differ in where the scale stands (at the product, or its root at q
and at k), in how k is transposed (at once, with the heads, or by Reshape, Transpose, Reshape), in
the guard against rows of NaN, and in the products, which some compute over [B·N, S, H] (``bmm``):

``q, k, v → Reshape [B·N, ·, ·];  q, kᵀ → MatMul → (Reshape → Add mask → Reshape) → Softmax → p;``
``p, v → MatMul → Reshape [B, N, S, V] → Transpose → Reshape``
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from gehost import DataType

from ._shapes import Size, Sizes, all_same, elements_of, same, shape_of
from ._types import HALVES, dtype_name, not_float

if TYPE_CHECKING:
    from gehost import Node, Value

HEADS_SECOND = [0, 2, 1, 3]
"""[B, S, N, H] to [B, N, S, H], and back."""


class NoMatch(Exception):  # noqa: N818 - it refuses a match and is no error
    """Why a Softmax is of no attention that the kernel computes: ``key: text``."""


@dataclass
class Attention:
    """One attention; sizes are B batch, N heads, S queries, T keys, H and V sizes of a head."""

    softmax: Node
    q: Value
    """[B, N, S, H] or [B, S, N·H]; [B, S, N, H] where ``rows_first`` holds it."""
    k: Value
    """[B, N, T, H]; or [B, T, N·H] or [B, T, N, H] together with v."""
    v: Value
    """[B, N, T, V], or [B, T, N·V] or [B, T, N, V]."""
    mask: Value | None
    mask_reader: Node | None
    scale: float
    softcap: float
    """c of ``c · tanh(scores / c)``, which are the scores below the mask; 0 without it."""
    guarded: bool
    heads: int
    sizes: tuple[Size, Size, Size, Size]
    """B, N, S, T."""
    bias: np.ndarray | None
    """[2·N·H + N·V]: the biases added to q, k and v, all of rank 3."""
    joining: Node
    """A Reshape, whose input is [B, S, N, V]."""
    last: Node
    """It, or the Cast of its result to the type of q. The result may be float32 of half."""
    rows_first: set[Value]
    """Those of q, k and v whose heads are the third axis: a Reshape puts them together."""
    nodes: list[Node] = field(default_factory=list["Node"])


def find_attention(softmax: Node, *, capped: bool = False) -> Attention:
    """Find the attention around a Softmax.

    Args:
        softmax: the node.
        capped: scores may be capped by Tanh, as few kernels can.

    Raises:
        NoMatch: with the reason.
    """
    finder = _Finder(capped=capped)
    return finder.find(softmax)


def joined(value: Value, heads: int) -> tuple[Value, list[Node]] | None:
    """Return the [B, S, N·H] that becomes [B, N, S, H], and nodes between."""
    finder = _Finder()
    found = finder.joined(value, heads)
    return None if found is None else (found, finder.nodes)


class _Finder:
    def __init__(self, *, capped: bool = False) -> None:
        self._capped = capped
        self.nodes: list[Node] = []
        self._reshaped: list[Value] = []
        """Scores, after a Reshape between [B·N, S, T] and [B, N, S, T]."""
        self._rows_first: set[Value] = set()

    def find(self, softmax: Node) -> Attention:
        scores = _input(softmax, 0)
        dims = shape_of(scores)
        if dims is None or len(dims) not in (3, 4):
            raise NoMatch("rank: the scores are no tensor of rank 3 or 4")
        axis = softmax.attrs.get("axis")
        if axis not in (-1, len(dims) - 1) and not (axis is None and _opset(softmax) >= 13):
            raise NoMatch(f"axis: softmax over axis {axis}, wanted the last")
        problem = not_float(scores)
        if problem:
            raise NoMatch(problem)
        self._take(softmax)
        product, mask, mask_reader, scale, softcap = self._above(scores)
        q_read, k_read = _input(product, 0), _input(product, 1)
        q, q_scale = self._unscaled(q_read)
        k, k_scale = self._unscaled(k_read)
        folded = len(shape_of(product.outputs[0]) or ()) == 3
        if folded:
            q, further = self._unscaled(self._unfolded(q))
            q_scale *= further
        keys = self._untransposed(k, folded=folded)
        probabilities, guarded = self._guard(softmax)
        mix, v = self._mix(probabilities)
        v = v if v.dtype == q.dtype else self._uncast(v)
        if folded:
            v = self._unfolded(v)
        result, apart = self._together(mix, folded=folded)
        last = self._last(result, q.dtype)
        self._check_types(q, keys[0], v)
        batch, heads, rows, columns = self._checked(q, keys, v)
        self._check_reshaped((heads, rows, columns), apart, v)
        self._check_mask(mask, mask_reader, (batch, heads, rows, columns))
        scale *= q_scale * k_scale
        if not 0 < scale < math.inf:
            raise NoMatch(
                f"scale: {scale:g}; a kernel takes 0 for its default, and no negative one"
            )
        joined = self.joined(q, heads) or self._untransposed_rows(q) or q
        k, v = self._joined_keys(keys, v, heads)
        (joined, k, v), bias = self._without_biases((joined, k, v))
        return Attention(
            softmax,
            joined,
            k,
            v,
            mask,
            mask_reader,
            scale,
            softcap,
            guarded,
            heads,
            (batch, heads, rows, columns),
            bias,
            result,
            last,
            self._rows_first,
            self.nodes,
        )

    def _without_biases(
        self, given: tuple[Value, Value, Value]
    ) -> tuple[tuple[Value, Value, Value], np.ndarray | None]:
        """Return q, k, v before their biases, and the biases in one.

        Where there is no bias, they are as given.
        """
        plain: list[Value] = []
        biases: list[np.ndarray] = []
        adds: list[Node] = []
        for value in given:
            dims = shape_of(value)
            if dims is None or len(dims) != 3 or not isinstance(dims[2], int):
                return given, None
            node = value.producer
            found = None if node is None else added_constant(node, dims[2])
            inside = all(reader in self.nodes for reader, _ in value.consumers())
            before = None if found is None else shape_of(found[0])
            is_as_wide = before is not None and len(before) == 3 and before[2] == dims[2]
            if not (node and found and is_as_wide and inside) or value.is_graph_output:
                assert value.dtype is not None
                plain.append(value)
                biases.append(np.zeros(dims[2], value.dtype.numpy))
            else:
                adds.append(node)
                plain.append(found[0])
                biases.append(found[1])
        if not adds:
            return given, None
        for node in adds:
            self._take(node)
        return (plain[0], plain[1], plain[2]), np.concatenate(biases)

    def _take(self, node: Node) -> None:
        if node not in self.nodes:
            self.nodes.append(node)

    def _above(self, scores: Value) -> tuple[Node, Value | None, Node | None, float, float]:
        """Return q·kᵀ, the mask and its Add, and scale and cap between them."""
        mask: Value | None = None
        reader: Node | None = None
        scores = self._unreshaped(self._uncast(scores))
        top = scores.producer
        if top is not None and top.op == "Add":
            left, right = _input(top, 0), _input(top, 1)
            inner = self._product_of(left, right)
            if inner is None:
                first, second = _first_other(left), _first_other(right)
                raise NoMatch(f"scores: {first} and {second} are added; wanted q·kᵀ and a mask")
            mask, reader = (right if inner is left else left), top
            self._take(top)
            self._own(scores, "the masked scores")
            scores = self._unreshaped(self._uncast(inner))
        value, scale = self._unscaled(scores, casts=True)
        product, softcap = value.producer, 0.0
        if self._capped and product is not None and product.op == "Tanh":
            self._take(product)
            value, inner = self._unscaled(_input(product, 0), casts=True)
            product, softcap, scale = value.producer, abs(scale), scale * inner  # Tanh is odd
        if product is None or product.op != "MatMul":
            raise NoMatch(f"scores: {_first_other(value)} between q·kᵀ and Softmax")
        self._take(product)
        return product, mask, reader, scale, softcap

    def _product_of(self, left: Value, right: Value) -> Value | None:
        """Return the addend that is a product; the other is the mask.

        The product may have another rank.
        """
        both = (left, right)
        direct = next((one for one in both if is_product(one)), None)
        if direct is None and self._capped:
            direct = next((one for one in both if is_capped(one)), None)
        if direct is not None:
            return direct
        reshaped = [one for one in both if one.producer and one.producer.op == "Reshape"]
        return next((one for one in reshaped if is_product(_input_of(one))), None)

    def _unscaled(self, value: Value, *, casts: bool = False) -> tuple[Value, float]:
        """The tensor below multiplications by constant scalars, and their product.

        Casts between float32 and half may stand between where ``casts`` is true.
        """
        scale = 1.0
        while True:
            value = self._uncast(value) if casts else value
            node = value.producer
            if node is None or node.op not in ("Mul", "Div"):
                break
            factor = factor_of(node)
            if factor is None:
                break
            self._take(node)
            value, scale = factor[0], scale * factor[1]
        return value, scale

    def _uncast(self, value: Value) -> Value:
        """The tensor below casts between float32 and half, as scores are widened for Softmax."""
        while (node := value.producer) is not None and is_float_cast(node):
            self._take(node)
            value = _input(node, 0)
        return value

    def _narrowed(self, value: Value) -> Value:
        """The tensor behind casts between float32 and half, as probabilities are narrowed."""
        while len(value.consumers()) == 1 and not value.is_graph_output:
            ((node, _),) = value.consumers()
            made = node.outputs[0]
            if not is_float_cast(node) or made is None:
                break
            self._take(node)
            value = made
        return value

    def _check_types(self, q: Value, k: Value, v: Value) -> None:
        """Check that q, k and v are of one type, which is half where casts widen the scores."""
        if not q.dtype == k.dtype == v.dtype:
            names = ", ".join(dtype_name(one.dtype) for one in (q, k, v))
            raise NoMatch(f"dtype: q, k and v are {names}")
        inside = {one.dtype for node in self.nodes for one in node.outputs if one is not None}
        if q.dtype == DataType.FLOAT and inside & HALVES:
            raise NoMatch("dtype: float32, cast to half and back inside")

    def _last(self, joining: Node, dtype: DataType | None) -> Node:
        """Return the node that gives the result: the Reshape, or the Cast to the type of q."""
        made = joining.outputs[0]
        assert made is not None
        return joining if made.dtype == dtype else self._narrowed(made).producer or joining

    def _unreshaped(self, scores: Value) -> Value:
        """The scores before a Reshape, which ``_check_reshaped`` checks; as given without one."""
        node = scores.producer
        if node is None or node.op != "Reshape":
            return scores
        self._take(node)
        self._reshaped.append(scores)
        return _input(node, 0)

    def _unfolded(self, value: Value) -> Value:
        """[B, N, S, H] that [B·N, S, H] is made of."""
        node = value.producer
        if node is None or node.op != "Reshape":
            raise NoMatch("layout: q, k or v of rank 3, not made of heads by Reshape")
        given, made = shape_of(node.inputs[0]), shape_of(value)
        if given is None or made is None or len(given) != 4 or not all_same(given[2:], made[1:]):
            raise NoMatch("layout: q, k or v of rank 3 is not proven to be [B·N, S, H]")
        self._take(node)
        return _input(node, 0)

    def _check_reshaped(
        self, wanted: tuple[int, Size, Size], apart: Value | None, values: Value
    ) -> None:
        """Check that scores keep one form, [B·N, S, T] or [B, N, S, T].

        The first axis follows by counting.
        """
        heads, rows, columns = wanted
        for one in self._reshaped:
            dims = shape_of(one) or ()
            if not all_same(dims[1:], wanted if len(dims) == 4 else (rows, columns)):
                raise NoMatch(
                    f"layout: scores {list(dims)}, wanted [.., {heads}, {rows}, {columns}]"
                )
        if apart is not None:
            dims, size = shape_of(apart) or (), (shape_of(values) or ())[-1:]
            if not all_same(dims[1:], (heads, rows, *size)):
                raise NoMatch(f"heads: {list(dims)} are not proven to be [B, {heads}, {rows}, V]")

    def _untransposed(self, k: Value, *, folded: bool) -> tuple[Value, list[int]]:
        """Return the keys before their transpose, and places of B, N, T, H."""
        node = k.producer
        if folded:
            if node is not None and node.op == "Transpose":
                if list(node.attrs.get("perm") or ()) not in ([0, 2, 1], []):
                    raise NoMatch(f"keys: transposed by {node.attrs.get('perm')}")
                self._take(node)
                return self._unfolded(_input(node, 0)), [0, 1, 2, 3]
            k = self._unfolded(k)
            node = k.producer
        if node is None:
            raise NoMatch("keys: not transposed by a node of this graph")
        if node.op == "Transpose":
            perm = list(node.attrs.get("perm") or ())
            if perm in ([0, 1, 3, 2], [0, 2, 3, 1]):
                self._take(node)
                return _input(node, 0), [perm[0], perm[1], perm[3], perm[2]]
            raise NoMatch(f"keys: transposed by {perm}")
        if node.op == "Reshape":
            middle = _input(node, 0).producer
            first = middle and _input(middle, 0).producer
            if (
                middle is not None
                and first is not None
                and middle.op == "Transpose"
                and list(middle.attrs.get("perm") or ()) == [0, 2, 1]
                and first.op == "Reshape"
            ):
                keys = _input(first, 0)
                given, flat = shape_of(keys), shape_of(first.outputs[0])
                wanted = given and (given[0], given[1], given[3], given[2])
                last = shape_of(k)
                if (
                    given is not None
                    and len(given) == 4
                    and flat is not None
                    and all_same(flat[1:], given[2:])
                    and all_same(last, wanted)
                ):
                    for one in (node, middle, first):
                        self._take(one)
                    return keys, [0, 1, 2, 3]
        raise NoMatch(f"keys: not transposed, but made by {node.op_type}")

    def _guard(self, softmax: Node) -> tuple[Value, bool]:
        """The probabilities, after ``Where(IsNaN(p), 0, p)`` where it is there."""
        made = softmax.outputs[0]
        assert made is not None
        readers = [reader for reader, _ in made.consumers()]
        tests = [reader for reader in readers if reader.op == "IsNaN"]
        if len(tests) == 1 and len(readers) == 2 and not made.is_graph_output:
            test = tests[0].outputs[0]
            (other,) = [reader for reader in readers if reader is not tests[0]]
            if (
                other.op == "Where"
                and other.inputs[0] is test
                and other.inputs[2] is made
                and _is_zero(other.inputs[1])
                and test is not None
                and len(test.consumers()) == 1
            ):
                self._take(tests[0])
                self._take(other)
                guarded = other.outputs[0]
                assert guarded is not None
                guarded = self._narrowed(guarded)
                self._own(guarded, "the probabilities")
                return guarded, True
        made = self._narrowed(made)
        self._own(made, "the probabilities")
        return made, False

    def _own(self, value: Value, what: str) -> None:
        if value.is_graph_output or len(value.consumers()) != 1:
            raise NoMatch(f"shared: {what} are read by others, too")

    def _mix(self, probabilities: Value) -> tuple[Value, Value]:
        ((node, slot),) = probabilities.consumers()
        reshaped = node.outputs[0]
        if node.op == "Reshape" and slot == 0 and reshaped is not None:
            self._take(node)
            self._reshaped.append(reshaped)
            self._own(reshaped, "the probabilities")
            ((node, slot),) = reshaped.consumers()
        if node.op != "MatMul" or slot != 0:
            raise NoMatch(f"values: the probabilities go to {node.op_type} input {slot}")
        self._take(node)
        made = node.outputs[0]
        assert made is not None
        return made, _input(node, 1)

    def _together(self, mix: Value, *, folded: bool) -> tuple[Node, Value | None]:
        """Return the Reshape that joins the heads, and [B, N, S, V].

        The latter is made of [B·N, S, V]; it is None if scores are not folded.
        """
        self._own(mix, "the mixed values")
        apart: Value | None = None
        if folded:
            ((node, slot),) = mix.consumers()
            apart = node.outputs[0]
            if node.op != "Reshape" or slot != 0 or apart is None:
                raise NoMatch(f"heads: put together by {node.op_type}")
            self._take(node)
            self._own(apart, "the mixed values")
            mix = apart
        ((node, _),) = mix.consumers()
        if node.op != "Transpose" or list(node.attrs.get("perm") or ()) != HEADS_SECOND:
            raise NoMatch(f"heads: put together by {node.op_type}")
        self._take(node)
        made = node.outputs[0]
        assert made is not None
        self._own(made, "the transposed values")
        ((last, _),) = made.consumers()
        if last.op != "Reshape" or last.inputs[0] is not made:
            raise NoMatch(f"heads: put together by {last.op_type}")
        target = elements_of(last.inputs[1])
        if target is None or 0 in target[2:]:
            raise NoMatch("heads: put together into an unknown shape")
        self._take(last)
        return last, apart

    def _checked(self, q: Value, keys: tuple[Value, list[int]], v: Value) -> Sizes4:
        """Return B, N, S and T; prove all that the kernel requires."""
        q_dims, v_dims, k_dims = (shape_of(one) for one in (q, v, keys[0]))
        if q_dims is None or k_dims is None or v_dims is None:
            raise NoMatch("rank: of q, k or v is unknown")
        if not len(q_dims) == len(k_dims) == len(v_dims) == 4:
            raise NoMatch("rank: q, k and v are not all of rank 4")
        batch, heads, rows, size = q_dims
        k_batch, k_heads, columns, k_size = (k_dims[place] for place in keys[1])
        if not isinstance(heads, int) or heads < 1:
            raise NoMatch("heads: their number is unknown")
        if not (heads == k_heads == v_dims[1]):
            raise NoMatch(f"heads: {heads} of q, {k_heads} of k, {v_dims[1]} of v")
        if not isinstance(size, int) or size != k_size or not isinstance(v_dims[3], int):
            raise NoMatch(f"head size: {size} of q, {k_size} of k, {v_dims[3]} of v")
        if not (same(batch, k_batch) and same(batch, v_dims[0])):
            raise NoMatch(
                f"batch: {batch} of q, {k_batch} of k, {v_dims[0]} of v: not proven equal"
            )
        if not same(columns, v_dims[2]):
            raise NoMatch(f"length: {columns} of k, {v_dims[2]} of v: not proven equal")
        if batch == 0:
            raise NoMatch("batch: it is 0")
        if 0 in (rows, columns):  # the runtime drops an Expand of a mask to 0 rows
            raise NoMatch(f"length: {rows} of q, {columns} of k")
        return batch, heads, rows, columns

    def _check_mask(self, mask: Value | None, reader: Node | None, wanted: Sizes4) -> None:
        if mask is None or reader is None:
            return
        dims = shape_of(mask)
        if len(shape_of(reader.outputs[0]) or ()) == 3 and dims and dims[:-2] not in ((), (1,)):
            raise NoMatch(f"mask: {list(dims)} over scores of [B·N, S, T]")
        if dims is None or not 2 <= len(dims) <= 4:
            raise NoMatch("mask: not of rank 2 to 4")
        dims = (1,) * (4 - len(dims)) + tuple(dims)
        batch, heads, rows, _ = wanted
        # another number of columns than 1 or T fails at the product with v, fused or not
        fits = (
            (dims[0] == 1 or same(dims[0], batch))
            and dims[1] in {1, heads}
            and (dims[2] == 1 or same(dims[2], rows))
        )
        if not fits:
            raise NoMatch(f"mask: {list(dims)} is not proven to fit scores of {list(wanted)}")

    def joined(self, value: Value, heads: int) -> Value | None:
        """Return [B, S, N·H] where Reshape and Transpose give [B, N, S, H]."""
        node = value.producer
        if node is None or node.op != "Transpose":
            return None
        if list(node.attrs.get("perm") or ()) != HEADS_SECOND:
            return None
        found = self._flat(_input(node, 0), heads)
        if found is not None:
            self._take(node)
        return found

    def _flat(self, value: Value, heads: int) -> Value | None:
        """Return [B, S, N·H] where a Reshape gives [B, S, N, H]."""
        node = value.producer
        if node is None or node.op != "Reshape":
            return None
        given, made = shape_of(node.inputs[0]), shape_of(value)
        if given is None or made is None or len(given) != 3 or len(made) != 4:
            return None
        if not all_same(given[:2], made[:2]) or made[2] != heads:
            return None
        if not isinstance(made[3], int) or given[2] != heads * made[3]:
            return None
        self._take(node)
        return node.inputs[0]

    def _joined_keys(
        self, keys: tuple[Value, list[int]], v: Value, heads: int
    ) -> tuple[Value, Value]:
        """Return k and v of rank 3 where both have one, else of rank 4."""
        taken, rows_first = list(self.nodes), set(self._rows_first)
        k, places = keys
        if places == [0, 1, 2, 3]:
            joined = self.joined(k, heads) or self._untransposed_rows(k)
        else:
            joined = self._flat(k, heads) or self._as_rows(k)
        values = self.joined(v, heads) or self._untransposed_rows(v)
        if joined is not None and values is not None:
            return joined, values
        self.nodes, self._rows_first = taken, rows_first
        if places != [0, 1, 2, 3]:
            raise NoMatch("layout: the heads of k are third, and those of v are not")
        return k, v

    def _untransposed_rows(self, value: Value) -> Value | None:
        """Return [B, S, N, H] where a Transpose gives [B, N, S, H], as after a rotation."""
        node = value.producer
        if node is None or node.op != "Transpose":
            return None
        if list(node.attrs.get("perm") or ()) != HEADS_SECOND:
            return None
        self._take(node)
        return self._as_rows(_input(node, 0))

    def _as_rows(self, value: Value) -> Value:
        self._rows_first.add(value)
        return value


Sizes4 = tuple[Size, int, Size, Size]


def _input(node: Node, slot: int) -> Value:
    value = node.input(slot)
    if value is None:
        raise NoMatch(f"input: {node.op_type} lacks input {slot}")
    return value


def _input_of(value: Value) -> Value:
    """The first input of the node that makes a value."""
    node = value.producer
    assert node is not None
    return _input(node, 0)


def _first_other(value: Value) -> str:
    """The first operator above a value that scales and reshapes nothing."""
    while (node := value.producer) is not None:
        factor = factor_of(node) if node.op in ("Mul", "Div") else None
        below = factor[0] if factor else node.inputs[0] if node.op == "Reshape" else None
        if below is None:
            return node.op_type
        value = below
    return "an input of the graph" if value.initializer is None else "an initializer"


def _opset(node: Node) -> int:
    return node.graph.model.opset() or 0


def factor_of(node: Node) -> tuple[Value, float] | None:
    """Return operand and constant scalar factor of a Mul or Div, or None."""
    left, right = node.inputs
    for value, other in ((left, right), (right, left)):
        if value is None or other is None or other.array is None or value.is_constant:
            continue
        if other.array.size != 1 or other.array.ndim > 1:
            continue
        number = float(other.array.reshape(-1)[0])
        if node.op == "Mul":
            return value, number
        if other is right and number:
            return value, 1.0 / number
    return None


def is_float_cast(node: Node) -> bool:
    """Whether a node casts between float32, float16 and bfloat16."""
    return node.op == "Cast" and not (not_float(node.inputs[0]) or not_float(node.outputs[0]))


def is_product(value: Value | None) -> bool:
    """Whether a value is a matrix product, perhaps scaled."""
    return product_factor(value) is not None


def product_factor(value: Value | None) -> float | None:
    """The constant that scales a matrix product, 1 without one; None for another value.

    Casts between float32 and half may stand between.
    """
    total = 1.0
    while value is not None and (node := value.producer) is not None and node.op != "MatMul":
        if is_float_cast(node):
            value = node.inputs[0]
            continue
        factor = factor_of(node) if node.op in ("Mul", "Div") else None
        if factor is None:
            return None
        value, total = factor[0], total * factor[1]
    return None if value is None or value.producer is None else total


def is_capped(value: Value | None) -> bool:
    """Whether a value is Tanh of a matrix product, both perhaps scaled."""
    node = None if value is None else value.producer
    while node is not None and node.op in ("Mul", "Div"):
        factor = factor_of(node)
        node = None if factor is None else factor[0].producer
    return node is not None and node.op == "Tanh" and is_product(node.inputs[0])


def added_constant(node: Node, width: int) -> tuple[Value, np.ndarray] | None:
    """Operand and constant [width] of an Add, or None."""
    if node.op != "Add":
        return None
    left, right = node.inputs
    for value, other in ((left, right), (right, left)):
        if value is not None and other is not None and not value.is_constant:
            array = other.array
            if array is not None and array.shape == (width,):
                return value, array
    return None


def _is_zero(value: Value | None) -> bool:
    array = None if value is None else value.array
    return array is not None and array.size == 1 and bool(np.all(array == 0))


__all__ = [
    "HEADS_SECOND",
    "Attention",
    "NoMatch",
    "Sizes",
    "added_constant",
    "factor_of",
    "find_attention",
    "is_capped",
    "is_product",
    "joined",
    "product_factor",
]
