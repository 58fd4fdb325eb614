"""The tensors that q, k, v and masks are taken from, with their layouts in atoms."""

from __future__ import annotations

from collections.abc import Mapping

from gehost import DataType, Value
from gehost_semantic.atoms import Atom, Operand, Refused
from gehost_semantic.attention import Attention, Floor, Role
from gehost_semantic.extents import Extent
from gehost_semantic.layouts import Layout, has_layout, is_readable, way_up
from gehost_semantic.view import View
from gehost_semantic.views import Views


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

        heads = axis(Role.HEAD) + axis(Role.GROUP)
        self.q_layout: Layout = [
            axis(Role.BATCH), heads, axis(Role.QUERY), axis(Role.HEAD_SIZE)
        ]  # fmt: skip
        self.result_layout: Layout = [
            axis(Role.BATCH), heads, axis(Role.QUERY), axis(Role.VALUE_SIZE)
        ]  # fmt: skip
        self.result = description.result
        """What the kernel's result becomes."""
        target = [[index.atom for index in dim] for dim in self.result.dims]
        if not all(is_readable(each, self.result_layout, description.sizes) for each in target):
            self.result = description.output
        self._key_layout: Layout = [axis(Role.BATCH), axis(Role.HEAD), axis(Role.KEY)]
        self._wide_layout: Layout = [axis(Role.BATCH), heads, axis(Role.KEY)]
        """With the heads of q, as the graph repeats those of k and v."""
        self._takes_groups = takes_groups
        q, k, v = description.q, description.k, description.v
        self.of: dict[str, tuple[Value, Layout]] = {
            "q": self._choose(q, self.q_layout, last=True),
            "k": self._of_keys(k, last=True),
            "v": self._of_keys(v, last=False),
        }
        self.factor = self._factor("q") * self._factor("k")
        """What multiplies q and k already in the chosen tensors."""
        self._masks = [
            step.operand for step in description.after if not isinstance(step, Floor)
        ] + [operand for operand, _ in description.scales]

    @property
    def score_type(self) -> DataType:
        value = self._description.softmax.inputs[0]
        return (value.dtype if value is not None else None) or DataType.FLOAT

    def key_layout(self, operand: Operand) -> Layout:
        """Return the layout of k or v: an axis that all batches share has size 1."""
        stored = {index.atom for dim in operand.dims for index in dim if index.axis is not None}
        description = self._description
        role = Role.HEAD_SIZE if operand is description.k else Role.VALUE_SIZE
        sizes = [atom for atom in self.order if description.roles[atom] is role]
        for axis in self._key_layout:
            if set(axis) - stored:
                raise Refused("keys: batches or heads share them in part")
        return [*self._key_layout, sizes]

    def _of_keys(self, operand: Operand, *, last: bool) -> tuple[Value, Layout]:
        layout = self.key_layout(operand)
        wide: Layout = [*self._wide_layout, layout[3]]
        own = [[index.atom for index in dim] for dim in operand.dims]
        repeats = not self._takes_groups and _same_atoms(own, wide)
        return self._choose(operand, wide if repeats else layout, last=last)

    def is_wide(self, name: str) -> bool:
        """Whether k or v have the heads of q already."""
        return _same_atoms(self.of[name][1], [*self._wide_layout, self.key_sizes(name)])

    def key_sizes(self, name: str) -> list[Atom]:
        role = Role.HEAD_SIZE if name == "k" else Role.VALUE_SIZE
        return [atom for atom in self.order if self._description.roles[atom] is role]

    def wide_layout(self, name: str) -> Layout:
        return [*self._wide_layout, self.key_sizes(name)]

    def of_operand(self, operand: Operand) -> tuple[Value, Layout]:
        return operand.value, _stored_layout(operand)

    def factor_of(self, operand: Operand) -> float:
        """Return what multiplies a mask already in its tensor."""
        view = self._views.of(operand.value)
        return 1.0 if view is None else view.factor

    def values(self) -> list[Value]:
        return [value for value, _ in self.of.values()] + [
            self.of_operand(operand)[0] for operand in self._masks
        ]

    def _factor(self, name: str) -> float:
        view = self._views.of(self.of[name][0])
        assert view is not None
        return view.factor

    def _choose(self, operand: Operand, layout: Layout, *, last: bool) -> tuple[Value, Layout]:
        """Return the tensor that has a layout, nearest to the base; else the operand itself."""
        views, sizes = self._views, self._description.sizes
        found: Value | None = None
        for value in way_up(views, operand.value, operand.base):
            view = views.of(value)
            if view is None or value.dtype != operand.value.dtype:
                break
            if not last and view.factor != operand.factor:
                break
            if value.graph is operand.value.graph and has_layout(view, operand, layout, sizes):
                found = value
        if found is not None:
            return found, layout
        own = [[index.atom for index in dim] for dim in operand.dims]
        if _same_atoms(own, layout):
            return operand.value, own
        return self._unrepeated(operand, layout)

    def _unrepeated(self, operand: Operand, layout: Layout) -> tuple[Value, Layout]:
        """Return the tensor before k or v are repeated for the heads of q."""
        for value in way_up(self._views, operand.value, operand.base):
            view = self._views.of(value)
            if view is None or view.offsets != operand.offsets or view.is_repeated:
                continue
            if value.dtype != operand.value.dtype or view.factor != operand.factor:
                continue
            terms: dict[tuple[int | None, Extent], Atom] = {
                (index.axis, index.stride): index.atom
                for dim in operand.dims
                for index in dim
                if index.axis is not None
            }
            own = _atoms_of(view, operand, terms, self._description)
            if own is not None and _same_atoms(own, layout):
                return value, own
        raise Refused("layout: no tensor holds the keys or values of each head once")


def _atoms_of(
    view: View,
    operand: Operand,
    terms: Mapping[tuple[int | None, Extent], Atom],
    description: Attention,
) -> list[list[Atom]] | None:
    """Return the atoms of each axis of a view of the operand's base."""
    del operand
    found: list[list[Atom]] = []
    for dim in view.dims:
        axis: list[Atom] = []
        for term in dim:
            inner: list[Atom] = []
            size: Extent = 1
            stride = term.stride
            while size != term.size:
                atom = terms.get((term.axis, stride))
                if atom is None:
                    return None
                inner.insert(0, atom)
                size = size * description.sizes[atom]
                stride = stride * description.sizes[atom]
                if len(inner) > len(terms):
                    return None
            axis += inner
        found.append(axis)
    return found


def _same_atoms(first: Layout, second: Layout) -> bool:
    return sorted(a for axis in first for a in axis) == sorted(a for axis in second for a in axis)


def _stored_layout(operand: Operand) -> Layout:
    """Return the atoms of each axis of an operand's tensor, without repeated ones."""
    return [[index.atom for index in dim] for dim in operand.dims]


def _order(description: Attention) -> list[Atom]:
    """Return the atoms in the order in which q, k, v and the result have them."""
    found: dict[Atom, None] = {}
    for operand in (description.result, description.q, description.k, description.v):
        for atom in operand.atoms:
            found.setdefault(atom)
    return [*found, *(atom for atom in description.roles if atom not in found)]
