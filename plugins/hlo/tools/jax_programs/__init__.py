"""Programs that XLA compiles for the tests, by subject; needs jax.

Each is a function of arrays and a list of inputs. The sets that ``make_texts.py`` records:
``corpus``, ``small``, ``more`` (a module for each kind of operation), ``wide`` (64-bit types, run
with JAX_ENABLE_X64=1) and ``outside``.
"""

from __future__ import annotations

from .contractions import contractions
from .control import control
from .corpus import corpus
from .indexing import indexing
from .inputs import Program, draw, ints
from .networks import networks
from .numbers import numbers
from .outside import outside
from .randomness import randomness
from .refused import refused
from .shapes import shapes
from .small import small
from .sorting import sorting
from .wide import wide
from .windows import windows


def more() -> dict[str, Program]:
    """Corners of the meaning of each opcode, and ordinary code of several kinds."""
    return {
        **numbers(),
        **sorting(),
        **windows(),
        **contractions(),
        **indexing(),
        **control(),
        **randomness(),
        **shapes(),
        **networks(),
        **refused(),
    }


__all__ = ["Program", "corpus", "draw", "ints", "more", "outside", "small", "wide"]
