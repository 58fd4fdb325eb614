"""``ge.es.custom``: operators that vendor files register."""

from gehost_ge import operators

__all__: list[str] = []
__getattr__ = operators.custom_operator
