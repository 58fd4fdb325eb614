"""The state that the rewrites of one pass share."""

from __future__ import annotations

from gehost.infer.local import Inferrer
from gehost.ir.model import Model
from gehost.ops import OpRegistry
from gehost.rewrite.cache import ReplacementCache
from gehost.rewrite.functions import FunctionCache, inferrer_of
from gehost.rewrite.provenance import Author


class RewriteSession:
    """The model that ``replace_region`` changes, the author, and caches.

    Attributes:
        author: names the new nodes, and is part of their provenance.
        cache: lowered replacements.
        functions: bodies that were added to the model.
    """

    def __init__(
        self, model: Model, registry: OpRegistry, author: Author, inferrer: Inferrer | None = None
    ) -> None:
        self.model = model
        self.registry = registry
        self.author = author
        self.inferrer = inferrer or inferrer_of(model, registry)
        self.cache = ReplacementCache(model, registry)
        self.functions = FunctionCache(model)
