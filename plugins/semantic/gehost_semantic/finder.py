"""Find attention: from a Softmax up to the product of q and k, and down to the product with v."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

from gehost import Node, Refusal, Refused, Value
from gehost_semantic.atoms import Atom, Atoms, Index, Joined, Operand, flat
from gehost_semantic.attention import Add, After, Attention, Cache, Floor, Role, Select
from gehost_semantic.extents import total
from gehost_semantic.views import Views

_PRODUCTS = frozenset({"MatMul", "Gemm", "Einsum"})
_STEPS = frozenset(
    {"Add", "Clip", "Div", "Max", "Min", "Mul", "Neg", "Sub", "Sum", "Tanh", "Where"}
)
_DEPTH = 24

Axes: TypeAlias = list[list[Atom]]


@dataclass(frozen=True, slots=True)
class _Times:
    number: float


@dataclass(frozen=True, slots=True)
class _TimesTensor:
    operand: Joined
    divides: bool


@dataclass(frozen=True, slots=True)
class _Tanh:
    pass


@dataclass(frozen=True, slots=True)
class _Addend:
    operand: Joined
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class _Selected:
    operand: Joined
    keeps: bool
    fill: float


_Way: TypeAlias = list[tuple[Node, int | None]]
_Step: TypeAlias = _Times | _TimesTensor | _Tanh | _Addend | _Selected | Floor


@dataclass(frozen=True, slots=True)
class _Product:
    left: Joined
    right: Joined
    summed: list[Atom]
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class _Use:
    """A product that reads the probabilities."""

    node: Node
    slot: int
    has_guard: bool


class AttentionFinder:
    """Describes the attention around a Softmax."""

    def __init__(self, views: Views) -> None:
        self.views = views

    def find(self, softmax: Node) -> Attention:
        """Return the description.

        Raises:
            Refused: it is none, or a size is not known; with the step.
        """
        key = "attention", softmax
        answer = self.views.answers.get(key)
        if answer is None:
            try:
                answer = _Search(self.views, softmax).run()
            except Refused as refusal:
                answer = refusal.refusal  # the exception would keep the search's frames
            self.views.answers[key] = answer
        if isinstance(answer, Refusal):
            raise Refused(answer)
        return cast("Attention", answer)


class _Search:
    def __init__(self, views: Views, softmax: Node) -> None:
        self._views = views
        self._softmax = softmax
        self._atoms = Atoms(views.extents)
        value, shape = softmax.inputs[0], views.shape(softmax.inputs[0])
        assert value is not None
        if shape is None:
            raise Refused("scores", _first_unknown(value))
        self._scores = value
        self._size = total(shape)
        self._top = self._atoms.axes(shape)
        """The atoms of the axes of the Softmax."""
        self._ways: dict[tuple[Value, int], _Way | None] = {}
        """By depth, too, at which a way is cut off."""

    def run(self) -> Attention:
        softmax, atoms = self._softmax, self._atoms
        rank = len(self._top)
        opset = softmax.graph.model.opset() or 0
        axis: int = softmax.attrs.get("axis", -1 if opset >= 13 else 1) % max(rank, 1)
        uses, readers = self._down()
        if not uses:  # the first step, as nothing else matters then
            other = f", but {readers[0]}" if readers else ""
            raise Refused("probabilities", f"no product reads them{other}")
        if opset < 13 and axis != rank - 1:
            raise Refused("softmax", "it is over several axes")
        steps, scores = self._up()
        use = uses[0]
        readers += [_named(other.node) for other in uses[1:] if other.node is not use.node]
        result, v = self._value_product(use)
        output = use.node.outputs[0]
        assert output is not None
        final = atoms.operand(self._final(output, result))

        # no axis is split from here on
        keys = set(atoms.leaves(self._top[axis]))
        summed = set(atoms.leaves(scores.summed))
        if set(atoms.leaves(v.summed)) != keys:
            raise Refused("values", f"{_named(use.node)} sums other axes than the Softmax is over")
        q, k, values = map(atoms.operand, (scores.left, scores.right, v.right))
        if keys.intersection(q.atoms) and keys.intersection(k.atoms):
            raise Refused("softmax", "it is over an axis that both operands of the product have")
        if not keys.issubset(k.atoms):
            q, k = k, q
        if not keys.issubset(k.atoms):
            raise Refused("keys", "the Softmax is not over an axis of one operand of the product")
        roles = self._roles(q, k, values, result, final, keys, summed)
        return self._description(steps, q, k, values, result, final, roles, readers, use)

    # up: from the Softmax to the product of q and k

    def _up(self) -> tuple[list[_Step], _Product]:
        path = self._lead(self._scores, 0)
        if path is None:
            raise Refused("scores", self._blocks())
        axes, value = [list(axis) for axis in self._top], self._scores
        steps: list[_Step] = []
        for node, slot in path:
            joined = self._join(value, axes, "scores")
            axes = self._of_base(joined, "scores")
            if joined.view.factor != 1:
                steps.append(_Times(joined.view.factor))
            if slot is None:
                product = self._product(node, axes)
                if product.factor != 1:
                    steps.append(_Times(product.factor))
                return steps[::-1], product
            steps += self._steps(node, slot, axes)[::-1]
            value = node.inputs[slot]
            assert value is not None
        raise Refused("scores", "no product of q and k leads to them")

    def _lead(self, value: Value, depth: int) -> _Way | None:
        """Return the operators from a tensor up to a product, with the slot of the way up."""
        key = value, depth
        if key not in self._ways:
            self._ways[key] = self._way(value, depth)
        return self._ways[key]

    def _way(self, value: Value, depth: int) -> _Way | None:
        view = self._views.of(value)
        if view is None or depth > _DEPTH or view.is_repeated:
            return None
        node = view.base.producer
        if node is None:
            return None
        shape = self._views.shape(view.base)
        if shape is None or self._views.extents.differ(total(shape), self._size):
            return None
        if node.op in _PRODUCTS:
            return [(node, None)] if node.op != "Einsum" or len(node.inputs) == 2 else None
        if node.op not in _STEPS:
            return None
        ways: list[_Way] = []
        for slot, operand in enumerate(node.inputs):
            if operand is None or not (operand.dtype is None or operand.dtype.is_float):
                continue
            if slot and node.op in ("Sub", "Div", "Clip"):
                continue
            way = self._lead(operand, depth + 1)
            if way is not None:
                ways.append([(node, slot), *way])
        return min(ways, key=self._rank) if len(ways) > 1 else ways[0] if ways else None

    def _blocks(self) -> str:
        """Return what the way up from the scores ends at."""
        value = self._scores
        while True:
            view = self._views.of(value)
            base = value if view is None else view.base
            node = base.producer
            operand = node.input(0) if node is not None and node.op in (*_STEPS, "Cast") else None
            if operand is None or operand.is_constant:
                break
            value = operand
        if node is None:
            return f'no product of q and k leads to them, but "{base.name}"'
        if node.op not in _PRODUCTS and any(map(self._after_product, node.inputs)):
            return f'{node.op} "{base.name}" changes them after a product'
        return f'no product of q and k leads to them, but "{base.name}", made by {node.op}'

    def _after_product(self, value: Value | None, depth: int = _DEPTH) -> bool:
        """Whether steps and layout operators alone stand between a tensor and a product."""
        view = self._views.of(value)
        node = None if view is None else view.base.producer
        if node is None or not depth:
            return False
        return node.op in _PRODUCTS or (
            node.op in _STEPS and self._after_product(node.input(0), depth - 1)
        )

    def _rank(self, way: Sequence[tuple[Node, int | None]]) -> tuple[bool, int, bool, int]:
        """Prefer a product as large as the scores, of two computed tensors, plain, in few steps."""
        node = way[-1][0]
        is_whole = total(self._views.shape(node.outputs[0]) or ()) == self._size
        views = [self._views.of(value) for value in node.inputs[:2]]
        constants = sum(view is None or view.base.is_constant for view in views)
        return not is_whole, constants, node.op == "Einsum", len(way)

    def _steps(self, node: Node, slot: int, axes: Axes) -> list[_Step]:
        """Return what an operator on the way does to the scores, in order."""
        others = [v for place, v in enumerate(node.inputs) if place != slot and v is not None]
        numbers = self._views.numbers
        if node.op in ("Add", "Sum", "Sub"):
            results: list[_Step] = []
            for other in others:
                # joined even where it adds zero: its shape may spread the scores
                joined = self._join(other, axes, "addend", spreads=True)
                if numbers.fill(other, self._views) != 0:
                    results.append(_Addend(joined, -1.0 if node.op == "Sub" else 1.0))
            return results
        if node.op in ("Mul", "Div"):
            joined = self._join(others[0], axes, "scale", spreads=True)
            return [_TimesTensor(joined, node.op == "Div")]
        if node.op == "Neg":
            return [_Times(-1.0)]
        if node.op == "Tanh":
            return [_Tanh()]
        if node.op == "Max" and len(others) == 1:
            least = numbers.scalar(others[0], self._views)
            if least is not None:
                return [Floor(least)]
        if node.op == "Clip":
            least = numbers.scalar(node.input(1), self._views)
            most = numbers.scalar(node.input(2), self._views)
            # float32's largest number is no bound
            if node.input(2) is not None and (most is None or most < 3e38):
                raise Refused("scores", "they are clipped from above")
            if node.input(1) is not None and least is None:
                raise Refused("scores", "their least value is no number")
            return [] if least is None else [Floor(least)]
        if node.op == "Where" and slot:
            other = node.inputs[3 - slot]
            fill = numbers.fill(other, self._views)
            condition = node.inputs[0]
            if fill is None or condition is None or other is None:
                raise Refused("mask", "what it puts in place of a score is no number")
            # a larger fill must not spread over more than the scores
            shape = self._views.shape(other)
            if shape is not None and any(size != 1 for size in shape):
                self._join(other, axes, "mask", spreads=True)
            joined = self._join(condition, axes, "mask", spreads=True)
            return [_Selected(joined, keeps=slot == 1, fill=fill)]
        raise Refused("scores", f"{node.op} changes them")

    def _join(self, value: Value, axes: Axes, what: str, *, spreads: bool = False) -> Joined:
        """Join a tensor's axes with atoms; ``spreads``: it may broadcast over them."""
        view = self._views.of(value)
        if view is None:
            raise Refused(what, f'the rank of "{value.name}" is not known')
        atoms, dims = self._atoms, self._atoms.of_view(view)
        surplus = len(dims) - len(axes)
        if surplus > 0:
            if any(dims[:surplus]):
                raise Refused(what, f'"{value.name}" has more axes than the scores')
            dims = dims[surplus:]
        for dim, axis in zip(dims, axes[len(axes) - len(dims) :], strict=True):
            if spreads and not dim:
                continue
            leaves = atoms.leaves(axis)
            if spreads and len(dim) == 1 and len(leaves) == 1:
                size, wide = atoms.sizes[dim[0].atom], atoms.sizes[leaves[0]]
                if size != wide and atoms.extents.broadcast(size, wide) == wide:
                    atoms.same(dim[0].atom, leaves[0])
                    continue
            if not dim and leaves:
                raise Refused(what, f'"{value.name}" widens them')
            atoms.unify(flat(dim), axis, f'{what}: a size of "{value.name}"')
        return Joined(view, dims, value)

    def _product(self, node: Node, axes: Axes) -> _Product:
        """Join both operands of a product with the atoms of its result."""
        views, atoms, factor = self._views, self._atoms, 1.0
        left, right = node.inputs[0], node.inputs[1]
        view, other = views.of(left), views.of(right)
        if view is None or other is None or left is None or right is None:
            raise Refused("product", "the rank of an operand is not known")
        a, b = atoms.of_view(view), atoms.of_view(other)
        operands = Joined(view, a, left), Joined(other, b, right)
        if node.op == "Einsum":
            return _Product(*operands, self._einsum(node, a, b, axes))
        if node.op == "Gemm":
            factor = float(node.attrs.get("alpha", 1.0))
            a = a[::-1] if node.attrs.get("transA", 0) else a
            b = b[::-1] if node.attrs.get("transB", 0) else b
            if node.input(2) is not None and node.attrs.get("beta", 1.0) != 0:
                raise Refused("product", "a Gemm adds to it")
        if len(a) < 2 or len(b) < 2:
            raise Refused("product", "an operand is a vector")
        atoms.unify(flat(a[-1]), flat(b[-2]), "product: the size that it sums", is_fact=True)
        for dim, axis in ((a[-2], axes[-2]), (b[-1], axes[-1])):
            atoms.unify(axis, flat(dim), "product: a size of its result")
        outer = axes[:-2]
        for dims, base in ((a[:-2], view.base), (b[:-2], other.base)):
            what = f'product: a size of the batch of "{base.name}"'
            for dim, axis in zip(dims, outer[len(outer) - len(dims) :], strict=True):
                if dim:
                    atoms.unify(axis, flat(dim), what)
        return _Product(*operands, flat(a[-1]), factor)

    def _einsum(
        self, node: Node, a: list[list[Index]], b: list[list[Index]], axes: Axes
    ) -> list[Atom]:
        equation = str(node.attrs["equation"]).replace(" ", "")
        sides = equation.split("->")
        letters = sides[0].split(",")
        if len(sides) != 2 or len(letters) != 2 or "." in equation:
            raise Refused("product", "the equation of an Einsum")
        if any(len(set(names)) != len(names) for names in letters):
            raise Refused("product", "an Einsum takes a diagonal")
        of_left, of_right = (
            dict(zip(names, dims, strict=True)) for names, dims in zip(letters, (a, b), strict=True)
        )
        result = dict(zip(sides[1], axes, strict=True))
        summed: list[Atom] = []
        for letter in dict.fromkeys(letters[0] + letters[1]):
            dims = [of[letter] for of in (of_left, of_right) if letter in of]
            if letter in result:
                for dim in dims:
                    if dim:
                        self._atoms.unify(result[letter], flat(dim), "product: a size of an Einsum")
                    elif result[letter] and len(dims) == 1:
                        raise Refused("product", "a size of an Einsum")
                continue
            if len(dims) != 2:
                raise Refused("product", "an Einsum sums one operand alone")
            # a size 1 spreads in an Einsum, so that it proves no equality
            self._atoms.unify(flat(dims[0]), flat(dims[1]), "product: the size that it sums")
            summed += flat(dims[0])
        return summed

    # down: from the Softmax to the product with v

    def _down(self) -> tuple[list[_Use], list[str]]:
        """Return the products that read the probabilities, and their other users."""
        views, numbers = self._views, self._views.numbers
        output = self._softmax.outputs[0]
        assert output is not None
        uses: list[_Use] = []
        others: list[str] = []
        bases, todo = {output}, [(output, False)]
        visited: set[Value] = set()
        while todo:
            value, has_guard = todo.pop()
            if value in visited:
                continue
            visited.add(value)
            for reader, slot in value.uses:
                if not isinstance(reader, Node):
                    others.append(f'the output "{value.name}"')
                elif reader.graph is not value.graph:
                    others.append(_named(reader))
                elif reader.op in _PRODUCTS and slot < 2:
                    uses.append(_Use(reader, slot, has_guard))
                elif reader.op == "Shape" or _only_guards(reader):
                    continue
                elif _is_guard(reader, slot, value) and (
                    numbers.fill(reader.inputs[1], views) == 0
                ):
                    guarded = reader.outputs[0]
                    assert guarded is not None
                    bases.add(guarded)
                    todo.append((guarded, True))
                else:
                    result = reader.outputs[0]
                    view = views.of(result)
                    if result is not None and view is not None and view.base in bases - {result}:
                        todo.append((result, has_guard))
                    else:
                        others.append(_named(reader))
        uses.sort(key=lambda use: use.node.order)
        return uses, others

    def _value_product(self, use: _Use) -> tuple[Axes, _Product]:
        """Return the atoms of the product's result, and the product with v on the right."""
        atoms, views = self._atoms, self._views
        shape = views.shape(use.node.outputs[0])
        if shape is None:
            raise Refused("values", "the rank of their product is not known")
        result = atoms.axes(shape)
        product = self._product(use.node, result)
        p, v = (product.left, product.right)[:: -1 if use.slot else 1]
        axes = self._of_base(p, "probabilities")
        factor = p.view.factor * product.factor
        output = self._softmax.outputs[0]
        while p.view.base is not output:
            guard = p.view.base.producer
            if guard is None or guard.op != "Where" or guard.inputs[2] is None:
                raise Refused("probabilities", "they are changed before their product")
            p = self._join(guard.inputs[2], axes, "probabilities")
            factor *= p.view.factor
            axes = self._of_base(p, "probabilities")
        for own, top in zip(axes, self._top, strict=True):
            atoms.unify(own, top, "probabilities: a size")
        if factor != 1:
            raise Refused("probabilities", "they are scaled before their product")
        return result, _Product(p, v, product.summed)

    def _final(self, output: Value, axes: Axes) -> Joined:
        """Return the result behind layout operators with one user."""
        last = output
        while len(last.uses) == 1:
            ((reader, slot),) = last.uses
            if not isinstance(reader, Node) or slot != 0 or reader.graph is not output.graph:
                break
            behind = reader.outputs[0]
            view = self._views.of(behind)
            if behind is None or view is None or view.base is not output:
                break
            if view.factor != 1 or view.is_repeated or view.casts or len(reader.outputs) > 1:
                break
            last = behind
        for value in (last, output):
            view = self._views.of(value)
            assert view is not None
            joined = Joined(view, self._atoms.of_view(view), value)
            try:
                for own, axis in zip(self._of_base(joined, "result"), axes, strict=True):
                    self._atoms.unify(own, axis, "result: a size")
            except Refused:
                if value is output:
                    raise
                continue
            return joined
        raise AssertionError

    def _output(self, use: _Use, axes: Axes) -> Joined:
        """Return the product's output with the atoms of its axes."""
        output = use.node.outputs[0]
        view = self._views.of(output)
        assert output is not None
        assert view is not None
        dims = [[Index(atom, place, 1) for atom in axis] for place, axis in enumerate(axes)]
        return Joined(view, dims, output)

    def _of_base(self, joined: Joined, what: str) -> Axes:
        shape = self._views.shape(joined.view.base)
        assert shape is not None  # a view has a base of known rank
        return self._atoms.of_base(joined, shape, what)

    # roles

    def _roles(
        self,
        q: Operand,
        k: Operand,
        v: Operand,
        result: Axes,
        final: Operand,
        keys: set[Atom],
        summed: set[Atom],
    ) -> dict[Atom, Role]:
        atoms = self._atoms
        produced = set(atoms.leaves(atom for axis in result for atom in axis))
        scores = [atom for axis in self._top for atom in atoms.leaves(axis)]
        values = produced - set(scores)
        if not values.issubset(v.atoms):
            raise Refused("values", "an axis of the result comes from neither operand")
        if summed.intersection(v.atoms):
            raise Refused("values", "they have the axis that the scores sum")
        rest = [atom for atom in scores if atom not in keys]
        if set(rest) - produced:
            raise Refused("result", "it lacks an axis of the scores")
        roles = dict.fromkeys(summed, Role.HEAD_SIZE)
        roles |= dict.fromkeys(keys, Role.KEY) | dict.fromkeys(values, Role.VALUE_SIZE)
        beside_values = next(
            (own for dim in final.dims if values & (own := set(flat(dim)))),
            set[Atom](),
        )
        stored = k.stored | v.stored
        beside_head_size = _beside(q, summed)
        rows = _rows(q, summed)
        alone = {atom for atom in rest if atom not in stored}
        if not rows:  # one query: heads share an axis with a head size
            alone -= beside_values | beside_head_size
            rows = alone
        if rows and not rows & alone:
            with_alone = [dim for dim in q.dims if alone.intersection(flat(dim))]
            if len(with_alone) == 1:
                rows = alone
        for atom in rest:
            if atom in stored:
                is_head = atom in beside_values or atom in beside_head_size
                roles[atom] = Role.HEAD if is_head else Role.BATCH
            else:
                roles[atom] = Role.QUERY if atom in rows else Role.GROUP
        batch = [atom for atom in rest if roles[atom] is Role.BATCH]
        if Role.HEAD not in roles.values() and len(batch) > 1:
            roles[batch[-1]] = Role.HEAD
        if any(roles[atom] is Role.QUERY for atom in set(rest) - q.stored):
            raise Refused("queries", "they are repeated")
        return roles

    # the description

    def _description(
        self,
        steps: Iterable[_Step],
        q: Operand,
        k: Operand,
        v: Operand,
        result: Axes,
        final: Operand,
        roles: dict[Atom, Role],
        readers: Sequence[str],
        use: _Use,
    ) -> Attention:
        from gehost_semantic.masks import meaning

        atoms = self._atoms
        scale, scales, softcap, after = _normal(steps)
        scale *= q.factor * k.factor
        if scale < 0 and softcap is not None:  # Tanh is odd
            scale, softcap = -scale, -softcap
        if not scale > 0 or (softcap is not None and not softcap > 0):
            raise Refused("scale", "it is not positive")
        description = Attention(
            self._softmax,
            q,
            k,
            v,
            atoms.operand(self._output(use, result)),
            final,
            roles,
            {atom: atoms.sizes[atom] for atom in roles},
            scale,
            tuple((atoms.operand(item.operand), item.divides) for item in scales),
            softcap,
            tuple(self._frozen(item) for item in after),
            use.has_guard,
            tuple(readers),
            (_cache(self._views, k), _cache(self._views, v)),
            tuple(atoms.assumed),
        )
        return replace(description, mask=meaning(self._views, description))

    def _frozen(self, step: _Addend | _Selected | Floor) -> After:
        if isinstance(step, _Addend):
            return Add(self._atoms.operand(step.operand), step.factor)
        if isinstance(step, _Selected):
            return Select(self._atoms.operand(step.operand), step.keeps, step.fill)
        return step


def _first_unknown(value: Value) -> str:
    """Name the first tensor on the way to one whose rank is not known."""
    while True:
        node = value.producer
        inputs = () if node is None else node.inputs
        before = next((v for v in inputs if v is not None and v.shape is None), None)
        if before is None:
            producer = "" if node is None else f", made by {node.op},"
            return f'the rank of "{value.name}"{producer} is not known'
        value = before


def _named(node: Node) -> str:
    return f'{node.op} "{node.label}"'


def _rows(q: Operand, summed: set[Atom]) -> set[Atom]:
    """Return the atoms of the axis of q beside the head size in the product."""
    place = next((n for n, dim in enumerate(q.dims) if summed.intersection(flat(dim))), None)
    if place is None or len(q.dims) < 2:
        return set(q.atoms) if place is not None else set()
    return set(flat(q.dims[-2 if place == len(q.dims) - 1 else -1]))


def _beside(q: Operand, summed: set[Atom]) -> set[Atom]:
    """Return the atoms that share an axis of q's base with the head size."""
    terms = [index for dim in q.dims for index in dim]
    axes = {index.axis for index in terms if index.atom in summed and index.axis is not None}
    return {index.atom for index in terms if index.axis in axes}


def _is_guard(node: Node, slot: int, value: Value) -> bool:
    """Whether a node is ``Where(IsNaN(p), 0, p)``."""
    if node.op != "Where" or slot != 2 or node.inputs[0] is None:
        return False
    test = node.inputs[0].producer
    return test is not None and test.op == "IsNaN" and test.inputs[0] is value


def _only_guards(node: Node) -> bool:
    if node.op != "IsNaN" or node.outputs[0] is None:
        return False
    return all(isinstance(user, Node) and user.op == "Where" for user in node.outputs[0].readers)


def _normal(
    steps: Iterable[_Step],
) -> tuple[float, list[_TimesTensor], float | None, list[_Addend | _Selected | Floor]]:
    """Return scale, scaling tensors, softcap, and what follows.

    Raises:
        Refused: the steps have another order.
    """
    scale, softcap, is_capped = 1.0, None, False
    scales: list[_TimesTensor] = []
    after: list[_Addend | _Selected | Floor] = []
    for step in steps:
        match step:
            case _Times(number):
                if after and not number > 0:
                    raise Refused("scale", "it is not positive")
                if is_capped and softcap is None and not after:
                    softcap = number
                    continue
                if is_capped:
                    raise Refused("softcap", "what it gives is scaled again")
                scale *= number
                after = [_scaled(item, number) for item in after]
            case _TimesTensor():
                if after or is_capped:
                    raise Refused("scale", "a tensor, after a mask or a softcap")
                scales.append(step)
            case _Tanh():
                if after or is_capped or scales:
                    raise Refused("softcap", "after a mask or another one")
                is_capped = True
            case _:
                if is_capped and softcap is None:
                    softcap = 1.0
                after.append(step)
    if is_capped and softcap is None:
        softcap = 1.0
    return scale, scales, softcap, after


def _scaled(step: _Addend | _Selected | Floor, by: float) -> _Addend | _Selected | Floor:
    """Multiply what follows the scores."""
    if isinstance(step, _Addend):
        return replace(step, factor=step.factor * by)
    if isinstance(step, _Selected):
        return replace(step, fill=step.fill * by)
    return Floor(step.least * by)


_WRITTEN = {"ScatterElements": 2, "ScatterND": 2, "TensorScatter": 1, "Where": 1}
"""Operators that write into a static cache, with the slot of what they write."""


def _cache(views: Views, operand: Operand) -> Cache | None:
    """Return past, new and present of keys or values that a Concat joins, or that are written."""
    base = operand.base
    node = base.producer
    if node is None or node.op not in ("Concat", *_WRITTEN) or len(node.inputs) < 2:
        return None
    if node.op == "Concat":
        past, new = node.inputs if len(node.inputs) == 2 else (None, None)
    elif node.op == "Where":
        new, past = node.inputs[1:]
    else:
        past, new = node.inputs[0], node.inputs[_WRITTEN[node.op]]
    view = views.of(past)
    if past is None or new is None or view is None or view.base.is_constant:
        return None
    source = view.base.producer
    if source is not None and source.op not in ("Gather", "Slice"):
        return None
    return Cache(past, new, base, is_static=node.op != "Concat")
