"""Several outputs of one operator, by position and by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gehost.es.graph import EsTensor


class EsOutputs(tuple[EsTensor, ...]):
    """Several outputs of one operator; ``outputs.Y`` is the one that its schema calls Y."""

    _by_name: dict[str, EsTensor]

    @classmethod
    def of(cls, tensors: Sequence[EsTensor], names: Sequence[str]) -> EsOutputs:
        outputs = cls(tensors)
        outputs._by_name = dict(zip(names, tensors, strict=False))
        return outputs

    @property
    def by_name(self) -> Mapping[str, EsTensor]:
        """The outputs by the names of the schema."""
        return self._by_name

    def __getattr__(self, name: str) -> EsTensor:
        cached = self.__dict__.get("_by_name", {}).get(name)
        if cached is None:
            raise AttributeError(
                f"there is no output {name!r}; there are "
                f"{', '.join(self.__dict__.get('_by_name', {}))}"
            )
        return cached
