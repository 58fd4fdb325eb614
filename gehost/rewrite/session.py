"""What changes graphs on behalf of rules: each rewrite is done as a whole, or leaves all as it
was.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import onnx

from gehost.errors import PassError
from gehost.es.graph import EsGraph
from gehost.infer.local import Inferrer
from gehost.ir.graph import Node
from gehost.ir.model import Model
from gehost.ir.region import Region, SubgraphBoundary
from gehost.ops import OpRegistry
from gehost.rewrite.cache import Key, Plans
from gehost.rewrite.functions import inferrer_of
from gehost.rewrite.lower import Refused
from gehost.rewrite.provenance import Author
from gehost.rewrite.replace import Transaction


class Rewriter:
    """Replaces parts of one model's graphs."""

    def __init__(
        self, model: Model, registry: OpRegistry, author: Author, inferrer: Inferrer | None = None
    ) -> None:
        self.model = model
        self.registry = registry
        self.author = author
        self.shape_proven = False
        """The rule at hand vouches for output sizes that cannot be compared."""
        self.inferrer = inferrer or inferrer_of(model, registry)
        self.replaced = 0
        self.rewired = False
        """Whether the last rewrite made old nodes read other old tensors than before."""
        self.plans: dict[Key, Plans] = {}
        self.bodies: dict[Hashable, tuple[str, onnx.FunctionProto | None]] = {}
        """Bodies that were made from matches, with the names under which they were offered."""

    def replace_boundary(
        self,
        boundary: SubgraphBoundary,
        replacement: EsGraph,
        replace: Callable[[Region, EsGraph], list[Node]] | None = None,
    ) -> list[Node]:
        """Replace what lies inside ``boundary``; returns the new nodes.

        Args:
            boundary: what is to go.
            replacement: what is to come.
            replace: does it; ``replace`` of this rewriter unless given.

        Raises:
            PassError: the boundary is not closed, or the rewrite may not be done; the graph is
                as it was.
        """
        try:
            region = boundary.region()
            if region.closes_cycle():
                raise Refused("cycle: the replacement would make one")
            return (replace or self.replace)(region, replacement)
        except Refused as refusal:
            failure = PassError(f"SubgraphRewriter.Replace: {refusal}")
            # authors may ask for it, and machine code leaves out what follows "from"
            failure.__cause__ = refusal
            raise failure from refusal

    def replace(self, region: Region, replacement: EsGraph) -> list[Node]:
        """Replace a region that is closed and makes no cycle; returns the new nodes.

        Raises:
            Refused: types that disagree or cannot be proven, an operator that the opset lacks,
                …; nothing was changed.
            PassError: the replacement does not fit the region, or rewrites feed each other
                without end.
        """
        if len(replacement.outputs) != len(region.outputs):
            raise PassError(
                f"the replacement has {len(replacement.outputs)} outputs, the pattern "
                f"{len(region.outputs)}"
            )
        if len(replacement.inputs) > len(region.inputs):
            raise PassError(
                f"the replacement has {len(replacement.inputs)} inputs, the pattern "
                f"{len(region.inputs)}"
            )
        self.rewired = False
        journal = self.model.journal
        mark = journal.mark()
        try:
            made = Transaction(self, region, replacement).run()
            self.replaced += 1
            return made
        except BaseException:
            journal.undo(mark)
            raise
