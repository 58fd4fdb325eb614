"""``ge.es.math``: operators by name."""

from gehost_ge.operators import operator as __getattr__

__all__ = ["__getattr__"]
