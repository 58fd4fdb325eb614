"""The tensors that q, k, v and masks are taken from, with their layouts in atoms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gehost import DataType, Refused, Value
from gehost_semantic.atoms import Atom, Operand
from gehost_semantic.attention import Attention, Role
from gehost_semantic.extents import Extent
from gehost_semantic.layouts import Layout, is_readable, layout_of, way_up
from gehost_semantic.view import View
from gehost_semantic.views import Views

PLAIN: Mapping[str, str] = {
    "q": "b h s d",
    "k": "b h t d",
    "v": "b h t v",
    "result": "b h s v",
}
"""The layouts of a kernel that asks for no others."""


class Sources:
    """The tensors that q, k, v and masks are taken from, with their layouts in atoms."""

    def __init__(self, views: Views, description: Attention, *, takes_groups: bool) -> None:
        self._views = views
        self._description = description
        roles = description.roles
        self.order = _order(description)
        """All atoms: of a role in the order of their strides."""

        def axis(*kinds: Role) -> list[Atom]:
            return [atom for kind in kinds for atom in self.order if roles[atom] is kind]

        self.heads = axis(Role.HEAD) + axis(Role.GROUP)
        """As in q: k and v may have those of HEAD alone."""
        self._axes = {role.value: axis(role) for role in Role if role is not Role.GROUP}
        self.result = description.result
        """What the kernel's result becomes."""
        target = [[index.atom for index in dim] for dim in self.result.dims]
        plain = self.layout("result", PLAIN["result"])
        if not all(is_readable(item, plain, description.sizes) for item in target):
            self.result = description.output
        self._takes_groups = takes_groups
        self._own = {name: self._without_cast(name) for name in "qkv"}
        self._wide = {name: self._is_wide(name) for name in "qkv"}
        self._found: dict[str, Sequence[tuple[Value, Layout]]] = {}
        self._chosen: dict[tuple[str, str], tuple[Value, Layout]] = {}

    def layout(self, name: str, text: str, *, is_wide: bool = True) -> Layout:
        """Return the atoms of a layout of q, k, v or the result.

        ``is_wide``: k and v have the heads of q.
        """
        axes = {letter: self._axes[letter] for letter in PLAIN[name].split()}
        if is_wide or name in ("q", "result"):
            axes["h"] = self.heads
        return layout_of(text, axes)

    def own(self, name: str) -> Operand:
        """Return an operand; v without a cast from the type of q."""
        return self._own[name]

    def _without_cast(self, name: str) -> Operand:
        description = self._description
        if name != "v":
            return description.q if name == "q" else description.k
        value = description.v.value
        while value.dtype != description.q.value.dtype:
            node = value.producer
            if node is None or node.op != "Cast" or node.inputs[0] is None:
                return description.v
            value = node.inputs[0]
        return (
            description.v if value is description.v.value else replace(description.v, value=value)
        )

    def is_wide(self, name: str) -> bool:
        """Whether k or v have the heads of q in the tensor that the graph's product reads."""
        return self._wide[name]

    def _is_wide(self, name: str) -> bool:
        if name == "q":
            return True
        if self._takes_groups and Role.GROUP in self._description.roles.values():
            return False
        own = [[index.atom for index in dim] for dim in self.own(name).dims]
        return _same_atoms(own, self.layout(name, PLAIN[name]))

    def choose(self, name: str, text: str) -> tuple[Value, Layout]:
        """Return the tensor for q, k or v that a layout is made of, with its layout.

        Raises:
            Refused: no tensor holds each element once.
        """
        key = name, text
        if key not in self._chosen:
            self._chosen[key] = self._choose(name, text)
        return self._chosen[key]

    def _choose(self, name: str, text: str) -> tuple[Value, Layout]:
        """Return the tensor from which the fewest operators make a layout, nearest to the base."""
        operand, is_wide = self.own(name), self.is_wide(name)
        target = self.layout(name, text, is_wide=is_wide)
        order = _flat(target)
        if not set(order) <= set(operand.atoms):
            what = "queries" if name == "q" else "keys"
            raise Refused(what, "batches or heads share them")
        if not is_wide:
            self._check_stored(operand)

        def operators(tensor: tuple[Value, Layout]) -> int:
            is_moved = _flat(tensor[1]) != order
            is_folded = any(len(axis) > 1 for axis in tensor[1])
            return (tensor[1] != target) + is_moved * (1 + is_folded)

        tensors = self._tensors(name)
        as_wanted = next((entry for entry in tensors if entry[1] == target), None)
        if as_wanted is not None:
            return as_wanted
        whole = [entry for entry in tensors if _same_atoms(entry[1], target)]
        if not whole:
            raise Refused("layout", "no tensor holds the keys or values of each head once")
        return min(whole, key=operators)

    def with_layout(self, name: str, text: str) -> Value | None:
        """Return the tensor of the graph that has a layout; k and v have the kernel's heads."""
        if name != "q" and not (self.is_wide(name) or self._takes_groups):
            return None
        layout = self.layout(name, text, is_wide=self.is_wide(name))
        return next((value for value, own in self._tensors(name) if own == layout), None)

    def _tensors(self, name: str) -> Sequence[tuple[Value, Layout]]:
        """Return the tensors that hold q, k or v, with their layouts; those near the base first.

        A factor behind one is made up for by the kernel's scale, but that of v.
        """
        if name not in self._found:
            operand, results = self.own(name), list[tuple[Value, Layout]]()
            terms = {(term.axis, term.stride): term.atom for dim in operand.dims for term in dim}
            for value in way_up(self._views, operand.value, operand.base):
                view = self._views.of(value)
                if view is None or value.dtype != operand.value.dtype:
                    break
                if name == "v" and view.factor != operand.factor:
                    break
                is_whole = view.offsets == operand.offsets
                own = _layout(view, terms, self._description.sizes) if is_whole else None
                if own is not None and value.graph is operand.value.graph:
                    results.append((value, own))
            self._found[name] = results[::-1]
        return self._found[name]

    def _check_stored(self, operand: Operand) -> None:
        for letter in "bht":
            if not operand.stored.issuperset(self._axes[letter]):
                raise Refused("keys", "batches or heads share them in part")

    @property
    def score_type(self) -> DataType:
        value = self._description.softmax.inputs[0]
        return (value.dtype if value is not None else None) or DataType.FLOAT

    def of_operand(self, operand: Operand) -> tuple[Value, Layout]:
        layout = [[index.atom for index in dim] for dim in operand.dims]
        outer: list[list[Atom]] = [[] for _ in range(len(operand.view.dims) - len(layout))]
        return operand.value, outer + layout

    def factor_of(self, operand: Operand) -> float:
        """Return what multiplies a mask already in its tensor."""
        view = self._views.of(operand.value)
        return 1.0 if view is None else view.factor

    def factor(self, value: Value) -> float:
        """Return what multiplies q or k already in a tensor."""
        view = self._views.of(value)
        assert view is not None
        return view.factor


def _layout(
    view: View, terms: Mapping[tuple[int | None, Extent], Atom], sizes: Mapping[Atom, Extent]
) -> list[list[Atom]] | None:
    """Return the atoms of each axis of a view, those with the ``terms``; None if it cuts one."""
    results: list[list[Atom]] = []
    for dim in view.dims:
        axis: list[Atom] = []
        for term in dim:
            inner: list[Atom] = []
            size: Extent = 1
            while size != term.size:
                atom = terms.get((term.axis, term.stride * size))
                if atom is None or len(inner) == len(terms):
                    return None
                inner.insert(0, atom)
                size = size * sizes[atom]
            axis += inner
        results.append(axis)
    return results


def _flat(layout: Layout) -> list[Atom]:
    return [atom for axis in layout for atom in axis]


def _same_atoms(first: Layout, second: Layout) -> bool:
    return sorted(_flat(first)) == sorted(_flat(second))


def _order(description: Attention) -> list[Atom]:
    """Return the atoms in the order in which q, k, v and the result have them."""
    results: dict[Atom, None] = {}
    for operand in (description.result, description.q, description.k, description.v):
        for atom in operand.atoms:
            results.setdefault(atom)
    return [*results, *(atom for atom in description.roles if atom not in results)]
