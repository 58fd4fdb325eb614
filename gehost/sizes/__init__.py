"""Sizes of tensors: what is computed with them, and what is asked of them.

Other modules ask a ``Scope``; they neither compute with sizes nor compare their texts.
"""

from gehost.sizes import lengths
from gehost.sizes.facts import is_fact, name_of
from gehost.sizes.scope import Scope
from gehost.sizes.size import Algebra, Answer, Dim, Known, Origin, Size
from gehost.sizes.texts import is_invented
from gehost.sizes.unlock import fact_for

__all__ = [
    "Algebra",
    "Answer",
    "Dim",
    "Known",
    "Origin",
    "Scope",
    "Size",
    "fact_for",
    "is_fact",
    "is_invented",
    "lengths",
    "name_of",
]
