"""``ge.es.all``: operators by name."""

from gehost_ge import operators

__getattr__ = operators.exported
