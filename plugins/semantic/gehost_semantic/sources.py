"""The tensors that q, k, v and masks are taken from, with their layouts in atoms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gehost import DataType, Refused, Value
from gehost_semantic.atoms import Atom, Operand
from gehost_semantic.attention import Attention, Role
from gehost_semantic.extents import Extent
from gehost_semantic.layouts import Layout, has_layout, is_readable, layout_of, way_up
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
        operand = self.own(name)
        is_wide = self.is_wide(name)
        plain = {atom for axis in self.layout(name, PLAIN[name], is_wide=is_wide) for atom in axis}
        if not plain <= set(operand.atoms):
            what = "queries" if name == "q" else "keys"
            raise Refused(what, "batches or heads share them")
        if not is_wide:
            self._check_stored(operand)
        apart = text.replace("(", "").replace(")", "")
        for item in dict.fromkeys((text, apart, PLAIN[name])):
            layout = self.layout(name, item, is_wide=is_wide)
            value = self._with_layout(operand, layout, last=name != "v")
            if value is not None:
                return value, layout
        layout = self.layout(name, PLAIN[name], is_wide=is_wide)
        own = [[index.atom for index in dim] for dim in operand.dims]
        if _same_atoms(own, layout):
            return operand.value, own
        return self._unrepeated(operand, layout)

    def with_layout(self, name: str, text: str) -> Value | None:
        """Return the tensor of the graph that has a layout; k and v have the kernel's heads."""
        if name != "q" and not (self.is_wide(name) or self._takes_groups):
            return None
        layout = self.layout(name, text, is_wide=self.is_wide(name))
        return self._with_layout(self.own(name), layout, last=name != "v")

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

    def _with_layout(self, operand: Operand, layout: Layout, *, last: bool) -> Value | None:
        """Return the tensor that has a layout, nearest to the base.

        ``last``: the kernel's scale makes up for factors behind it.
        """
        views, sizes = self._views, self._description.sizes
        result: Value | None = None
        for value in way_up(views, operand.value, operand.base):
            view = views.of(value)
            if view is None or value.dtype != operand.value.dtype:
                break
            if not last and view.factor != operand.factor:
                break
            if value.graph is operand.value.graph and has_layout(view, operand, layout, sizes):
                result = value
        return result

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
            own = _atoms_of(view, terms, self._description)
            if own is not None and _same_atoms(own, layout):
                return value, own
        raise Refused("layout", "no tensor holds the keys or values of each head once")


def _atoms_of(
    view: View,
    terms: Mapping[tuple[int | None, Extent], Atom],
    description: Attention,
) -> list[list[Atom]] | None:
    """Return the atoms of each axis of a view of the operand's base."""
    results: list[list[Atom]] = []
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
        results.append(axis)
    return results


def _same_atoms(first: Layout, second: Layout) -> bool:
    return sorted(a for axis in first for a in axis) == sorted(a for axis in second for a in axis)


def _order(description: Attention) -> list[Atom]:
    """Return the atoms in the order in which q, k, v and the result have them."""
    results: dict[Atom, None] = {}
    for operand in (description.result, description.q, description.k, description.v):
        for atom in operand.atoms:
            results.setdefault(atom)
    return [*results, *(atom for atom in description.roles if atom not in results)]
