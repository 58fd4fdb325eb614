"""The forms in which one model runs; at most one of them is loaded at a time.

| form | types | for |
|---|---|---|
| plain | half widened to float32, else as written | the numbers that are compared |
| optimized | plain, with ONNX Runtime's optimizations | the original's own error |
| inlined | plain, with bodies of functions in place of calls | functions that do not run |
| rounded | plain, rounded to half behind each node | models in half |
| precise | float64 | what errors are measured from |
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from gehost.ir.inline import inline_functions
from gehost.verify.activations import activation_bytes
from gehost.verify.constants import NO_CONSTANTS, set_constants
from gehost.verify.precise import load_precise
from gehost.verify.reference import reference_faults
from gehost.verify.retype import HALF, TO_DOUBLE, WIDER, holds, retyped_bytes
from gehost.verify.room import COPIES_OF_ONE, check_room
from gehost.verify.rounded import rounded
from gehost.verify.run import MUCH, Runner
from gehost.verify.widen import widened

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Feeds = Mapping[str, NDArray[Any]]
    Run = Callable[[Feeds], dict[str, NDArray[Any]]]

_FEW = 1024
"""Elements of feeds below which no tensors of a run are estimated; generated ones have fewer."""
_SINGLE = HALF | {onnx.TensorProto.FLOAT}


class Forms:
    """The forms of one model.

    Attributes:
        runner: the model as written.
        half: whether it has tensors of float16 or bfloat16.
        judged: whether it computes in float32 or half, so that its errors can be measured.
        engine: of the form that ran last.
    """

    def __init__(self, runner: Runner, exact: Mapping[float, float] = NO_CONSTANTS) -> None:
        """Take the model as written, and the exact numbers of constants that it has rounded."""
        self.runner = runner
        self._exact = exact
        self.engine = runner.engine
        model = runner.proto()
        self.half = holds(model, HALF)
        self.judged = holds(model, _SINGLE)
        self._activations: dict[object, int] = {}

    @contextmanager
    def plain(self, *, widen: bool) -> Generator[Run]:
        """Yield a function that runs the model as written, or widened."""
        if not widen:
            self.engine = self.runner.engine
            yield self.runner.run
            self.runner.close()
            return
        with self._loaded(widened, WIDER) as run:
            yield run

    @contextmanager
    def optimized(self, *, widen: bool) -> Generator[Run]:
        """Yield a function that runs it with ONNX Runtime's optimizations on."""
        if widen:
            with self._loaded(widened, WIDER, optimized=True) as run:
                yield run
            return
        runner = self.runner.like(self.runner.source, self.runner.base_dir, optimized=True)
        yield runner.run

    @contextmanager
    def inlined(self, *, widen: bool, op: tuple[str, str] | None = None) -> Generator[Run]:
        """Yield a function that runs it with the calls of its functions inlined, or those of one.

        A runtime may prefer its own kernel of a function's name; this form has no such call.
        """

        def inline(model: onnx.ModelProto) -> onnx.ModelProto:
            return inline_functions(model, keep=lambda f: op not in (None, (f.domain, f.name)))

        def form(
            model: onnx.ModelProto, base_dir: str | None, folder: Path | None
        ) -> onnx.ModelProto:
            return widened(inline(model), base_dir, folder)

        if widen:
            with self._loaded(form, WIDER) as run:
                yield run
            return
        yield self.runner.like(inline(self.runner.proto()), self.runner.base_dir).run

    @contextmanager
    def rounded(self) -> Generator[Run]:
        """Yield a function that runs it with the roundings of half."""
        with self._loaded(rounded, WIDER) as run:
            yield run

    @contextmanager
    def precise(self) -> Generator[Run]:
        """Yield a function that runs it in float64."""
        model, base_dir = self.runner.proto(), self.runner.base_dir
        with self._room("its run in float64", TO_DOUBLE) as folder:
            wide = model
            if self.half:
                wide = widened(model, base_dir, folder)
                set_constants(wide, self._exact)
            source = str(folder) if folder is not None and self.half else base_dir
            where = str(folder) if folder is not None else base_dir
            # an operator without a kernel of float64 runs in the reference, or computes in float32
            is_wrong = self.runner.engine == "onnxruntime" and reference_faults(wide)
            engine = "onnxruntime" if is_wrong else None

            def load(form: onnx.ModelProto) -> Runner:
                return self.runner.like(form, where, engine=engine)

            runner = load_precise(wide, load, source, folder)

            def run(feeds: Feeds) -> dict[str, NDArray[Any]]:
                self._check_activations("its run in float64", feeds, TO_DOUBLE)
                return runner.run(_cast(feeds, np.float64))

            yield run

    @contextmanager
    def _loaded(
        self,
        form: Callable[[onnx.ModelProto, str | None, Path | None], onnx.ModelProto],
        types: Mapping[int, int],
        *,
        optimized: bool = False,
    ) -> Generator[Run]:
        model, base_dir = self.runner.proto(), self.runner.base_dir
        with self._room("its run in float32", types) as folder:
            where = str(folder) if folder is not None else base_dir
            changed = form(model, base_dir, folder)
            set_constants(changed, self._exact)
            runner = self.runner.like(changed, where, optimized=optimized)
            self.engine = runner.engine

            def run(feeds: Feeds) -> dict[str, NDArray[Any]]:
                self._check_activations("its run in float32", feeds, types)
                return runner.run(_cast(feeds, np.float32))

            yield run

    def _check_activations(self, what: str, feeds: Feeds, types: Mapping[int, int]) -> None:
        """Raise ``NoRoomError`` where the tensors of a run do not fit into memory."""
        if sum(array.size for array in feeds.values()) < _FEW:
            return
        shapes = tuple((name, array.shape) for name, array in sorted(feeds.items()))
        key = (*shapes, *sorted(types.items()))
        if key not in self._activations:
            self._activations[key] = activation_bytes(self.runner.proto(), feeds, types)
        check_room(f"{self.runner.name}: {what}", self._activations[key], copies=1)

    @contextmanager
    def _room(self, what: str, types: Mapping[int, int]) -> Generator[Path | None]:
        """Yield the folder for weights that are better mapped than held in memory."""
        sizes = retyped_bytes(self.runner.proto(), types)
        what = f"{self.runner.name}: {what}"
        with ExitStack() as stack:
            folder = None
            if sum(sizes) > MUCH:
                result = stack.enter_context(tempfile.TemporaryDirectory(prefix="gehost-verify-"))
                folder = Path(result)
                check_room(what, max(sizes), copies=COPIES_OF_ONE)
            check_room(what, sum(sizes), folder)
            yield folder


def _cast(feeds: Feeds, dtype: type[np.floating[Any]]) -> Feeds:
    """Return the feeds of a form: floats up to its type have its type."""
    narrower = ("float16", "bfloat16", *(["float32"] if dtype is np.float64 else []))
    return {
        name: array.astype(dtype) if array.dtype.name in narrower else array
        for name, array in feeds.items()
    }
