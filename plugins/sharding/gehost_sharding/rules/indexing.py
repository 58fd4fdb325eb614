"""Rules of Gather and its relatives."""

from __future__ import annotations

from gehost_sharding.rules.rule import NEED, PASS, Factors, Instance, Rule, replicate


def gather(instance: Instance) -> Rule:
    """The axis must be whole; other dimensions of the data and all of the indices pass."""
    data_shape, index_shape = instance.shape(0), instance.shape(1)
    axis: int = instance.attribute("axis", 0) % len(data_shape)
    factors = Factors()
    data = tuple(
        factors.add(size, NEED if dim == axis else PASS) for dim, size in enumerate(data_shape)
    )
    indices = tuple(factors.add(size) for size in index_shape)
    return factors.rule([data, indices], [(*data[:axis], *indices, *data[axis + 1 :])], 0)


def gather_elements(instance: Instance) -> Rule:
    """Dimensions of equal size pass, but the axis of the data, which must be whole."""
    data_shape, index_shape = instance.shape(0), instance.shape(1)
    axis: int = instance.attribute("axis", 0) % len(data_shape)
    factors = Factors()
    data: list[tuple[int, ...]] = []
    indices: list[tuple[int, ...]] = []
    for dim, (size, count) in enumerate(zip(data_shape, index_shape, strict=True)):
        if dim == axis:
            data.append(factors.add(size, NEED))
            indices.append(factors.add(count))
        elif size == count:
            data.append(factors.add(size))
            indices.append(data[-1])
        else:
            data.append(factors.add(size, NEED))
            indices.append(factors.add(count, NEED))
    return factors.rule([tuple(data), tuple(indices)], [tuple(indices)], 0)


def gather_nd(instance: Instance) -> Rule:
    """Indexed dimensions of the data must be whole; the others and those of the indices pass."""
    if instance.attribute("batch_dims", 0):
        return replicate(instance)
    data_shape, index_shape = instance.shape(0), instance.shape(1)
    indexed = index_shape[-1]
    factors = Factors()
    data = tuple(
        factors.add(size, NEED if dim < indexed else PASS) for dim, size in enumerate(data_shape)
    )
    places = tuple(factors.add(size) for size in index_shape[:-1])
    indices = (*places, factors.add(indexed, NEED))
    return factors.rule([data, indices], [(*places, *data[indexed:])], 0)


def one_hot(instance: Instance) -> Rule:
    """Dimensions of the indices pass; the new one must be whole."""
    shape = instance.shape(0)
    rank = len(shape) + 1
    axis: int = instance.attribute("axis", -1) % rank
    factors = Factors()
    indices = tuple(factors.add(size) for size in shape)
    depth = factors.add(instance.results[0][axis], NEED)
    others = [factors.need(extra) for extra in instance.operands[1:]]
    return factors.rule([indices, *others], [(*indices[:axis], depth, *indices[axis:])], 0)
