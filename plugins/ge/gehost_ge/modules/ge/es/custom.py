"""``ge.es.custom``: operators that vendor files register."""

from gehost_ge.operators import custom_operator as __getattr__

__all__ = ["__getattr__"]
