"""Run a model as written.

It runs by ONNX Runtime without optimizations, or by the reference evaluator.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx
import onnx.external_data_helper
from google.protobuf.message import EncodeError

from gehost.activity import running
from gehost.errors import ModelError, UnsupportedModelError, UsageError
from gehost.infer import Inferrer, infer_model
from gehost.infer.findings import unloadable
from gehost.ir.files.external import (
    element_bits,
    element_count,
    external_tensors,
    locate,
    map_data,
)
from gehost.ir.model import Model
from gehost.kernels import kernels, release
from gehost.ops import OpRegistry
from gehost.verify.feeds import without_weights
from gehost.verify.onnx_runtime import onnx_runtime
from gehost.verify.retype import HALF, holds
from gehost.verify.room import COPIES_IN_MEMORY, COPIES_OF_FILE, check_room

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

ENGINES = ("onnxruntime", "reference")

# Messages of ONNX Runtime about wrong inputs.
_BAD_INPUT = (
    "Unexpected input data type",
    "Invalid rank for input",
    "Got invalid dimensions for input",
)


def engine_name(engine: str) -> str:
    """Return the names of engines with their versions."""
    named: list[str] = []
    for part in engine.split(", "):
        if part == "reference":
            named.append(f"onnx.reference {onnx.__version__}")
        else:
            named.append(f"ONNX Runtime {importlib.import_module('onnxruntime').__version__}")
    return " and ".join(named)


class Runner:
    """One model, loaded once, to be run on any number of inputs.

    The engine is ``onnxruntime`` with one thread, and all optimizations off unless asked for. It is
    ``reference`` (``onnx.reference``, functions inlined) if ONNX Runtime is not installed, cannot
    run the types of the model, or is too old for its opset or IR version. Later changes to a
    ``ModelProto`` have no effect.

    Args:
        model: A path, or a model in memory.
        base_dir: The directory of the external data of a model in memory.
        libraries: Shared libraries of custom operators for ONNX Runtime, which is then the only
            engine tried.
        engine: ``onnxruntime`` or ``reference``, which is then the only one tried; None for the
            choice above.
        optimized: Whether ONNX Runtime optimizes the model.
        role: ``original`` or ``result``, for whoever watches the process.
        widens: Whether it is compared with another in forms of float32, too. A model in half for
            which ONNX Runtime lacks a kernel then fails when it runs as written.

    Raises:
        UnsupportedModelError: ONNX Runtime has no kernel for an operator without a body, or does
            not know the model's opset or IR version, and the reference cannot run it either.
        ModelError: No engine can load the model.
        NoRoomError: There is not enough memory, as far as that is known.
        UsageError: The engine does not exist or is not installed; a library cannot be loaded, or
            the engine takes none.
    """

    def __init__(
        self,
        model: onnx.ModelProto | str | os.PathLike[str],
        *,
        base_dir: str | Path | None = None,
        libraries: Sequence[str | os.PathLike[str]] = (),
        engine: str | None = None,
        optimized: bool = False,
        role: str = "original",
        widens: bool = False,
    ) -> None:
        if engine not in (None, *ENGINES):
            raise UsageError(f"engine {engine!r}: wanted {' or '.join(ENGINES)}")
        self.libraries = tuple(os.path.abspath(library) for library in libraries)
        self.source = model if isinstance(model, onnx.ModelProto) else Path(model)
        self._name = (
            str(self.source)
            if isinstance(self.source, Path)
            else f"model {self.source.graph.name!r}"
        )
        directory = None if base_dir is None else Path(base_dir)
        if isinstance(self.source, Path):
            directory = self.source.parent
        self._role = role
        self._check_room()
        self._directory, self._optimized, self._asked = directory, optimized, engine
        self._session: _OnnxRuntime | _Reference | None = None
        try:
            self._session = self._load(engine)
        except UnsupportedModelError as error:
            if not widens or not holds(self.proto(), HALF):
                raise
            # widened, types that clash would be one type
            if self._fault():
                raise self._unloadable(error) from error
        self.engine = "onnxruntime" if self._session is None else self._session.name
        """``onnxruntime`` or ``reference``."""

    def _check_room(self) -> None:
        """Raise ``NoRoomError`` where a session does not fit into memory."""
        size, copies = 0, COPIES_IN_MEMORY
        with suppress(OSError, ValueError, EncodeError):  # errors of the load, which names them
            if isinstance(self.source, Path):
                size, copies = self.source.stat().st_size, COPIES_OF_FILE
            else:
                size = self.source.ByteSize()
        check_room(f"{self._name}: a run", size, copies=copies)

    def _load(self, engine: str | None) -> _OnnxRuntime | _Reference:
        """Create a session; errors are those of the class."""
        if self.libraries and engine == "reference":
            raise UsageError("the reference takes no libraries of operators", where=self._name)
        try:
            if engine == "reference":
                return self._in_reference()
            with running(self._role, self._name):
                return _OnnxRuntime(
                    self.source,
                    None if isinstance(self.source, Path) else self._directory,
                    self.libraries,
                    optimized=self._optimized,
                )
        except (ModelError, UsageError):
            raise
        except (ImportError, _UnsupportedError) as error:
            self._check_reference_serves(error, engine)
            return self._in_reference_too(error)
        except Exception as error:  # both engines raise exceptions of many types
            lack = _missing_feature(str(error))
            if not lack:
                raise self._unloadable(error) from error
            if engine is None and not self.libraries and _TOO_OLD in lack:
                with suppress(ModelError):
                    return self._in_reference_too(error)
            raise UnsupportedModelError(f"{self._name} cannot run here: {lack}") from error

    def _check_reference_serves(self, error: Exception, engine: str | None) -> None:
        """Raise what is wrong where only ONNX Runtime may run the model."""
        if self.libraries:
            raise UsageError(
                f"only ONNX Runtime takes libraries of operators: {_one_line(error)}",
                where=self._name,
            ) from error
        if engine is not None and isinstance(error, ImportError):
            raise UsageError(
                "engine 'onnxruntime' is not installed: pip install 'onnxruntime>=1.21.1'"
            ) from error
        if engine is not None:
            raise ModelError(
                f"engine 'onnxruntime' cannot run the model: {_one_line(error)}"
            ) from error

    def _in_reference_too(self, cause: Exception) -> _Reference:
        """Load the model in the reference, as ONNX Runtime could not."""
        try:
            return self._in_reference()
        except (ModelError, UsageError):
            raise
        except Exception as error:
            message = cause if isinstance(cause, _UnsupportedError) else error
            lack = _missing_feature(str(message))
            if lack:
                raise UnsupportedModelError(f"{self._name} cannot run here: {lack}") from error
            raise self._unloadable(message) from error

    def _unloadable(self, error: Exception) -> ModelError:
        """Return why the model does not load: the node whose types clash, or the engine's words."""
        fault = self._fault()
        if fault:
            return ModelError(fault[0], where=self._name, hint=fault[1])
        return ModelError(f"{self._name} does not load: {_one_line(error)}")

    def _fault(self) -> tuple[str, str] | None:
        """Return at which node types meet that no engine takes, and the way out."""
        with suppress(Exception):  # of a model that is not valid: the engine's words name it
            model = Model(without_weights(self.proto()))
            infer_model(model, inferrer := Inferrer(model, OpRegistry()))
            why, hint = unloadable(model, inferrer)
            return (why, hint) if why else None
        return None

    def like(
        self,
        model: onnx.ModelProto | Path,
        base_dir: str | Path | None,
        *,
        engine: str | None = None,
        optimized: bool = False,
    ) -> Runner:
        """Return a runner of a form of this model, with the same libraries.

        Unless given, the engine is chosen as for this model: other types may run in another one.
        """
        return Runner(
            model,
            base_dir=base_dir,
            libraries=self.libraries,
            engine=engine or self._asked,
            optimized=optimized,
            role=self._role,
        )

    def close(self) -> None:
        """Free the session's memory; the next run loads the model again."""
        self._session = None

    def _in_reference(self) -> _Reference:
        return _Reference(self.proto(), self._directory)

    @property
    def base_dir(self) -> str | None:
        """The directory of the model's external data."""
        return None if self._directory is None else str(self._directory)

    @property
    def name(self) -> str:
        """The path, or the name of the graph."""
        return self._name

    def proto(self) -> onnx.ModelProto:
        """Return the model, without external data."""
        if isinstance(self.source, onnx.ModelProto):
            return self.source
        try:
            return onnx.ModelProto.FromString(self.source.read_bytes())
        except Exception as error:  # protobuf's DecodeError, and OSError
            raise ModelError(f"{self._name} does not load: {_one_line(error)}") from error

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Compute the outputs, by name and in the model's order.

        A sequence or map yields an entry for each element (``scores[0]``), an absent optional none.

        Raises:
            UsageError: An input is missing, unknown, or not of the declared type or shape.
            ModelError: The model fails while it runs.
        """
        session = self._session = self._session or self._load(self.engine)
        required, optional = session.inputs
        entries = {*required, *optional}
        wrong = [name for name in feeds if name not in entries]
        missing = [name for name in required if name not in feeds]
        if wrong or missing:
            what = (
                f"has no input {wrong[0]!r}" if wrong else f"needs a value for input {missing[0]!r}"
            )
            raise UsageError(
                f"{self._name} {what}; its inputs are {', '.join(map(repr, required)) or 'none'}"
            )
        try:
            with running(self._role, self._name):
                values = session.run(feeds)
        except Exception as error:  # as in __init__
            text = _one_line(error)
            if text.startswith(_BAD_INPUT):
                raise UsageError(text, where=self._name) from error
            raise ModelError(f"{self._name} does not run: {text}") from error
        return dict(item for name, value in values.items() for item in _tensors(name, value))


_TOO_OLD = "supports at most"
_TOO_NEW = f"and {{runtime}} {_TOO_OLD} {{most}}; the reference does not run it either"
_LACKS = MappingProxyType(
    {
        r"error: (?P<domain>(?!ai\.onnx:)[^\s:]+):(?P<op>\w+)\(.* not a registered function": (
            "operator {domain}::{op} has no body in the model and {runtime} no kernel for it; load "
            "one by --ort-library, or compare the numbers without its provided_by"
        ),
        r"Failed to find kernel for (?P<domain>com\.microsoft)\.(?P<op>\w+)\(": (
            "{runtime} has no kernel of {domain}::{op} on a CPU, and the model no body of it; run "
            "it on its device (--provider cuda)"
        ),
        r"Could not find an implementation for (?P<op>\w+)\(": (
            "{runtime} has no kernel of {op} on a CPU, and the model no body of it; run it on its "
            "device (--provider cuda)"
        ),
        r"IR version: (?P<has>\d+), max supported IR version: (?P<most>\d+)": (
            f"it has IR version {{has}}, {_TOO_NEW}"
        ),
        r"Opset (?P<has>\d+) is .* domain (?P<domain>\S+) is till opset (?P<most>\d+)": (
            f"it has opset {{has}} of {{domain}}, {_TOO_NEW}"
        ),
    }
)
"""Messages of ONNX Runtime about what it lacks, and ours."""


_NO_TYPE = r"Type 'tensor\((?P<type>\w+)\)' of input parameter \(\w+\) of operator \((?P<op>\w+)\)"
"""In its message about a definition that lacks a type, which a later release may have."""


def _missing_feature(text: str) -> str:
    """Return what ONNX Runtime lacks, "" if the model is at fault."""
    return _missing_type(text) or _missing_kernel(text)


def _missing_type(text: str) -> str:
    match = re.search(_NO_TYPE, text)
    if match is None:
        return ""
    operator, version = f"com.microsoft::{match['op']}", onnx_runtime().__version__
    releases = [
        row.since for row in kernels() if row.operator == operator and match["type"] in row.types
    ]
    first = min(releases, key=release, default="0")
    if release(first) <= release(".".join(re.findall(r"\d+", version)[:3])):
        return ""
    return f"ONNX Runtime {version} has no {operator} of {match['type']}, {first} has"


def _missing_kernel(text: str) -> str:
    for pattern, message in _LACKS.items():
        match = re.search(pattern, text)
        if match:
            version = onnx_runtime().__version__
            return message.format(runtime=f"ONNX Runtime {version}", **match.groupdict())
    return ""


class _UnsupportedError(Exception):
    """ONNX Runtime lacks a kernel, or numpy a type.

    The model may be valid.
    """


class _OnnxRuntime:
    name = "onnxruntime"

    def __init__(
        self,
        source: onnx.ModelProto | Path,
        directory: Path | None,
        libraries: Sequence[str],
        *,
        optimized: bool,
    ) -> None:
        self._runtime: Any = onnx_runtime()
        options = self._runtime.SessionOptions()
        levels = self._runtime.GraphOptimizationLevel
        options.graph_optimization_level = (
            levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
        )
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        for library in libraries:
            try:
                options.register_custom_ops_library(library)
            except Exception as error:  # of the library or its loader, of any type
                raise UsageError(
                    f"library {library} cannot be loaded: {_one_line(error)}"
                ) from error
        readable, directory = _readable(source, directory)
        if directory is not None:  # lets the runtime map the weights of a model in memory
            options.add_session_config_entry(
                "session.model_external_initializers_file_folder_path", str(directory.absolute())
            )
        if _maps_much(source):  # weights packed for the processor would be copies in memory
            options.add_session_config_entry("session.disable_prepacking", "1")
        content = readable if isinstance(readable, str) else _serialized(readable, directory)
        try:
            self._session: Any = self._runtime.InferenceSession(
                content, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            if type(error).__name__ == "NotImplemented":
                raise _UnsupportedError(_one_line(error)) from error
            raise
        for value in (*self._session.get_inputs(), *self._session.get_outputs()):
            if re.search(r"\((bfloat16|float8|float4)", value.type):
                raise _UnsupportedError(f"{value.name} is a {value.type}")
        self.inputs: tuple[list[str], list[str]] = (
            [value.name for value in self._session.get_inputs()],
            [value.name for value in self._session.get_overridable_initializers()],
        )

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Any]:
        options = self._runtime.RunOptions()
        options.log_severity_level = 4
        names = [value.name for value in self._session.get_outputs()]
        return dict(zip(names, self._session.run(names, dict(feeds), options), strict=True))


MUCH = 1 << 29
"""Bytes of weights that are better mapped from a file than held in memory."""


def _maps_much(source: onnx.ModelProto | Path) -> bool:
    """Whether many weights of a model are in another file."""
    if isinstance(source, Path):
        if source.stat().st_size > MUCH:
            return False
        source = onnx.ModelProto.FromString(source.read_bytes())
    outside = external_tensors(source)
    return sum(element_bits(item.data_type) * element_count(item) for item in outside) > 8 * MUCH


_MOST = 1 << 31
"""Largest protobuf in bytes that ONNX's inference accepts."""


class _Reference:
    name = "reference"

    def __init__(self, model: onnx.ModelProto, directory: Path | None) -> None:
        from onnx.reference import ReferenceEvaluator

        from gehost.ir.inline import inline_functions

        if model.functions:
            model = inline_functions(model)
        model = _with_weights(model, directory)
        # Operators whose body depends on types (Gelu) need them stated.
        typed = onnx.shape_inference.infer_shapes(model) if model.ByteSize() < _MOST else model
        self._evaluator: Any = ReferenceEvaluator(typed)
        initialized = {tensor.name for tensor in model.graph.initializer}
        names = [value.name for value in model.graph.input]
        self.inputs = (
            [n for n in names if n not in initialized],
            [n for n in names if n in initialized],
        )

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Any]:
        with np.errstate(all="ignore"):
            values = self._evaluator.run(None, dict(feeds))
        return dict(zip(self._evaluator.output_names, values, strict=True))


def _readable(
    source: onnx.ModelProto | Path, directory: Path | None
) -> tuple[onnx.ModelProto | str, Path | None]:
    """Return the model for ONNX Runtime to read, and its weights' directory.

    It cannot open a path that is not UTF-8; such a file is read here.
    """
    if isinstance(source, Path):
        if _is_utf8(source):
            return str(source), directory
        source, directory = onnx.ModelProto.FromString(source.read_bytes()), source.parent
    if directory is not None and not _is_utf8(directory.absolute()):
        return _with_weights(source, directory), None
    return source, directory


def _is_utf8(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def _with_weights(model: onnx.ModelProto, directory: Path | None) -> onnx.ModelProto:
    """Return the model, or a copy if weights are in another file."""
    if not _check_weights(model, directory):
        return model
    full = onnx.ModelProto()
    full.CopyFrom(model)
    for tensor in list(external_tensors(full)):
        tensor.raw_data = map_data(locate(tensor, str(directory))).tobytes()
        tensor.ClearField("data_location")
        tensor.ClearField("external_data")
    return full


def _check_weights(model: onnx.ModelProto, directory: Path | None) -> bool:
    """Whether weights are in another file.

    Raises ``ModelError`` if its directory is not known.
    """
    outside = any(
        onnx.external_data_helper.uses_external_data(tensor) for tensor in model.graph.initializer
    )
    if outside and directory is None:
        raise ModelError(
            f"the weights of model {model.graph.name!r} are in another file: give the path "
            "of the model"
        )
    return outside


def _serialized(model: onnx.ModelProto, directory: Path | None) -> bytes:
    _check_weights(model, directory)
    try:
        return model.SerializeToString()
    except Exception as error:  # protobuf's EncodeError or ValueError, depending on its version
        raise ModelError(
            f"model {model.graph.name!r} is too large to run from memory: give its path"
        ) from error


def _tensors(name: str, value: Any) -> Iterator[tuple[str, Array]]:
    """Yield the tensors of an output.

    Names of nested ones show their place.
    """
    if isinstance(value, Mapping):
        for key, element in cast("Mapping[Any, Any]", value).items():
            yield from _tensors(f"{name}[{key}]", element)
    elif isinstance(value, list | tuple):
        for number, element in enumerate(cast("list[Any]", value)):
            yield from _tensors(f"{name}[{number}]", element)
    elif value is not None:
        array: Array = np.asarray(value)
        yield name, array.astype(object) if array.dtype.kind in "US" else array


def _one_line(error: BaseException) -> str:
    """Return the first line of an error, without ONNX Runtime's own prefix."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", lines[0])
