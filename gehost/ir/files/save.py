"""Write files atomically: each is either new and complete, or unchanged."""

from __future__ import annotations

import errno
import io
import mmap
import os
import re
import stat
import sys
import zlib
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress

import onnx
from google.protobuf.message import EncodeError
from msgspec import Struct

from gehost.errors import ModelError, OutputError
from gehost.ir.files.external import (
    ExternalLocation,
    external_tensors,
    file_names,
    locate,
    location_problem,
    open_data,
)

_PAGE = 4096
_CHUNK = 8 << 20
_PROTOBUF_LIMIT = 2**31 - 1
_FICLONE = 0x40049409  # linux/fs.h
# Errors of copy_file_range if the file system or the kernel does not support it; reading and
# writing still works.
_NO_KERNEL_COPY = frozenset(
    {errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM}
)


def save_model(
    proto: onnx.ModelProto, path: str | os.PathLike[str], source_dir: str | None
) -> None:
    """Write a model atomically.

    After an error the old output and its weights are unchanged.

    External data stays in place if the output is in the model's own directory. Otherwise it is
    copied to ``<output>.<hash>.data`` beside the output, each tensor at a multiple of 4096 bytes
    (or, if the file system can share blocks, the single source file as it is), and the saved model
    refers to it; ``checksum`` and unknown keys, which describe the old file, are dropped. The hash
    is that of the contents, so that no model ever reads the weights of another compile. ``proto``
    is unchanged afterwards.

    Raises:
        OutputError: the file cannot be written, or would overwrite the model's own weights.
        ModelError: the external data cannot be used, or the model is larger than protobuf allows.
    """
    with _reporting(path):
        target = output_file(path)
        tensors = list(external_tensors(proto))
        files = file_names(tensors)
        directory = os.path.dirname(target)
        _refuse_weights(target, files, source_dir)
        if tensors and directory != os.path.realpath(os.path.dirname(os.path.abspath(path))):
            raise OutputError(
                f"{os.fspath(path)!r} is a symbolic link into another directory, where its "
                "weights would not be found",
                hint=f"name the file itself, {target!r}",
            )
        source = None if source_dir is None else os.path.abspath(source_dir)
        if not tensors or (
            source and os.path.isdir(source) and os.path.samefile(directory, source)
        ):
            _write(target, _serialize(proto))
            return
        _check_data_name(target)
        locations = [locate(tensor, source_dir) for tensor in tensors]
        with _staged(target) as data, _staged(target) as model:
            offsets = _copy_data(locations, data.file.fileno())
            data_target = _data_target(target, data.file)
            _refuse_weights(data_target, files, source_dir)
            with _relocated(tensors, locations, offsets, os.path.basename(data_target)):
                content = _serialize(proto)
            _write_all(model.file.fileno(), content)
            _commit_both(model, data, data_target, {location.path for location in locations})


def write_bytes_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file atomically; after an error the old one is unchanged.

    Raises:
        OutputError: the file cannot be written.
    """
    with _reporting(path):
        _write(output_file(path), data)


def write_pieces_atomic(path: str | os.PathLike[str], pieces: Iterable[bytes]) -> None:
    """Write a model without external data, given in pieces, atomically.

    Raises:
        OutputError: the file cannot be written.
        ModelError: the model is larger than protobuf allows.
    """
    with _reporting(path), _staged(output_file(path)) as staged:
        total, waiting, size = 0, list[bytes](), 0
        for piece in pieces:
            waiting.append(piece)
            size += len(piece)
            if size >= _CHUNK:
                _write_all(staged.file.fileno(), b"".join(waiting))
                total, waiting, size = total + size, [], 0
            if total + size > _PROTOBUF_LIMIT:
                raise _too_large()
        _write_all(staged.file.fileno(), b"".join(waiting))
        _commit(staged)


@contextmanager
def _reporting(path: str | os.PathLike[str]) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"cannot write {os.fspath(path)!r}: {error.strerror or error}; an existing file is "
            "unchanged"
        ) from error


def output_file(path: str | os.PathLike[str]) -> str:
    """Return an output path's real, replaceable file, links resolved.

    Raises:
        OutputError: nothing can be written there.
    """
    text = os.fspath(path)
    if "\0" in text:
        raise OutputError(
            f"cannot write {text!r}: the name has a NUL character", hint="name another file"
        )
    real = os.path.realpath(text)
    try:
        mode = os.stat(real).st_mode
    except FileNotFoundError:
        mode = None
    if not os.path.basename(text) or (mode is not None and stat.S_ISDIR(mode)):
        raise OutputError(f"cannot write {text!r}: it names a directory", hint="name a file in it")
    if mode is not None and not stat.S_ISREG(mode):
        raise OutputError(
            f"cannot write {text!r}: it is a device, a pipe or a socket", hint="name a regular file"
        )
    if mode is not None and not os.access(real, os.W_OK):
        raise OutputError(
            f"cannot write {text!r}: it is write-protected",
            hint="make it writable or name another file",
        )
    if not os.path.isdir(os.path.dirname(real)):
        raise OutputError(
            f"cannot write {text!r}: there is no directory {os.path.dirname(real)!r}",
            hint="create it first",
        )
    return real


_HASH = "[0-9a-f]{32}"
_NO_MODEL = re.compile(rf"\.{_HASH}\.data$|^\.gehost-.*\.tmp$")
"""Weights, and files that are not complete."""


def _check_data_name(target: str) -> None:
    name = os.path.basename(target)
    if not name.isprintable() or location_problem(name):
        raise OutputError(
            f"cannot write the weights of {target!r}: models cannot refer to such a name",
            hint="rename the output",
        )


def _data_target(target: str, data: io.FileIO) -> str:
    """Return the path of a model's weights, which names their contents."""
    import hashlib  # only models with external data need it

    data.seek(0)
    digest = hashlib.sha256()
    while block := data.read(_CHUNK):
        digest.update(block)
    path = f"{target}.{digest.hexdigest()[:32]}.data"
    if os.path.isdir(path) and not os.path.islink(path):
        raise OutputError(
            f"cannot write weights to {path!r}: it names a directory", hint="rename the output"
        )
    return path


def _other_data(target: str) -> set[str]:
    """Return the weights beside a model that compiles wrote for it, and no copy of it reads."""
    directory, name = os.path.split(target)
    other = re.compile(rf"{re.escape(name)}\.{_HASH}\.data")
    names = {file_name for file_name in os.listdir(directory) if other.fullmatch(file_name)}
    for file_name in os.listdir(directory) if names else ():
        path = os.path.join(directory, file_name)
        if file_name != name and not _NO_MODEL.search(file_name) and os.path.isfile(path):
            names = {data for data in names if not _holds(path, os.fsencode(data))}
    return {os.path.join(directory, data) for data in names}


def _holds(path: str, text: bytes) -> bool:
    """Whether a file has a text, or cannot be read."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(text) >= 0
    except ValueError:  # an empty file
        return False
    except OSError:
        return True


def _refuse_weights(target: str, files: Iterable[str], source_dir: str | None) -> None:
    """Refuse an output that is one of the model's weight files."""
    for name in files if source_dir is not None and os.path.exists(target) else ():
        # A missing file, or an invalid name, is not the output.
        with suppress(OSError, ValueError):
            if os.path.samefile(os.path.join(os.path.abspath(source_dir or ""), name), target):
                raise OutputError(
                    f"cannot write {target!r}: the model reads its weights from it",
                    hint="name another output",
                )


def _serialize(proto: onnx.ModelProto) -> bytes:
    try:
        content = proto.SerializeToString()
    except EncodeError as error:
        raise _too_large() from error
    if len(content) > _PROTOBUF_LIMIT:
        raise _too_large()
    return content


def _too_large() -> ModelError:
    return ModelError(
        "the model cannot be written as one protobuf, which holds 2 GiB at most",
        hint="keep its weights as external data",
    )


# files that are complete before they get their name


class _Staged(Struct, frozen=True):
    """A new file under a temporary name beside its target."""

    target: str
    temporary: str
    file: io.FileIO


@contextmanager
def _staged(target: str) -> Generator[_Staged]:
    """Yield a file to fill and ``_commit``; remove it without a commit."""
    temporary = _beside(target)
    _remove_stale(target)
    try:
        # Not mkstemp: its mode 0600 ignores the umask.
        with io.FileIO(temporary, "x+") as file:
            with suppress(FileNotFoundError):
                os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
            yield _Staged(target, temporary, file)
    finally:
        _remove(temporary)


def _remove(path: str) -> None:
    """Remove a file if it exists, also during interrupts, ignoring failures.

    The error that led here matters more.
    """
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except BaseException as error:  # an interrupt is raised after the removal
        with suppress(OSError):
            os.unlink(path)
        if not isinstance(error, OSError):
            raise


def _beside(target: str) -> str:
    """Return a fresh temporary name beside the target.

    It encodes the target and the current process.
    """
    namespace, pid = _namespace(), os.getpid()
    owner = f"{namespace}-{pid}-{_started(pid)}"
    name = f".gehost-{_key(target)}-{owner}-{os.urandom(4).hex()}.tmp"
    return os.path.join(os.path.dirname(target), name)


def _key(target: str) -> str:
    return f"{zlib.crc32(os.fsencode(os.path.basename(target))):08x}"


def _namespace() -> int:
    """Return the namespace of process numbers; 0 if there is only one."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _started(pid: int) -> int | None:
    """Return a process's start in ticks since boot.

    Returns 0 if the time is unknown, None if the process is gone.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:  # a process of another user
        return 0
    return 0


def _remove_stale(target: str) -> None:
    """Remove temporary files of a target whose process was killed, if possible."""
    directory, beginning = os.path.dirname(target), f".gehost-{_key(target)}-"
    with suppress(OSError):
        for name in os.listdir(directory):
            if not name.startswith(beginning) or not name.endswith(".tmp"):
                continue
            namespace, pid, start, *_ = name.removeprefix(beginning).split("-")
            # process numbers of other containers cannot be checked here
            if (
                namespace == str(_namespace())
                and pid.isdigit()
                and start != str(_started(int(pid)))
            ):
                _remove(os.path.join(directory, name))


def _write(target: str, content: bytes) -> None:
    with _staged(target) as staged:
        _write_all(staged.file.fileno(), content)
        _commit(staged)


def _commit(staged: _Staged) -> None:
    """Give a file its name, once it is on disk."""
    os.fsync(staged.file.fileno())
    staged.file.close()
    os.replace(staged.temporary, staged.target)


def _commit_both(model: _Staged, data: _Staged, data_target: str, used: set[str]) -> None:
    """Give both files their names, or neither; remove unused weights of earlier compiles.

    Between the two renames, and where the process is killed there, the old model has its own
    weights, as the new ones have another name.
    """
    os.fsync(data.file.fileno())
    data.file.close()
    with _alone_in(os.path.dirname(model.target)) as alone:
        # without a lock, another process may be about to write a model that reads them
        others = (
            _other_data(model.target) - {data_target} - set(map(os.path.realpath, used))
            if alone
            else set[str]()
        )
        is_new = not os.path.lexists(data_target)
        committed = False
        try:
            os.replace(data.temporary, data_target)
            _commit(model)
            committed = True
        finally:
            # an interrupt may come after the last rename, when the commit is complete
            if committed or not os.path.lexists(model.temporary):
                for path in others:
                    _remove(path)
            elif is_new:
                _remove(data_target)


@contextmanager
def _alone_in(directory: str) -> Generator[bool]:
    """Keep other processes from putting weights in place; False where that cannot be done."""
    try:
        import fcntl

        descriptor = os.open(directory, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except (ImportError, OSError):  # Windows, a directory that cannot be read
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:  # some network file systems
            yield False
            return
        try:
            yield True
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # also if an interrupt skips the close
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


# copying external data


@contextmanager
def _relocated(
    tensors: list[onnx.TensorProto],
    locations: list[ExternalLocation],
    offsets: list[int],
    name: str,
) -> Generator[None]:
    """Point tensors to their places in the new file during the block."""
    # Restoring a few strings is cheaper than copying a large proto.
    before = [onnx.TensorProto(external_data=tensor.external_data) for tensor in tensors]
    try:
        for tensor, location, offset in zip(tensors, locations, offsets, strict=True):
            del tensor.external_data[:]
            for key, value in (
                ("location", name),
                ("offset", str(offset)),
                ("length", str(location.length)),
            ):
                tensor.external_data.add(key=key, value=value)
        yield
    finally:
        for tensor, old in zip(tensors, before, strict=True):
            del tensor.external_data[:]
            tensor.external_data.extend(old.external_data)


def _copy_data(locations: list[ExternalLocation], destination: int) -> list[int]:
    """Copy regions into a file, equal ones once; return new offsets."""
    by_path: dict[str, list[ExternalLocation]] = {}
    for region in dict.fromkeys(location for location in locations if location.length):
        by_path.setdefault(region.path, []).append(region)
    placed: dict[ExternalLocation, int] = {}
    end = 0
    for regions in by_path.values():
        # Opened for the furthest region, the file is long enough for the others.
        source = open_data(max(regions, key=lambda region: region.offset + region.length))
        try:
            total = sum(region.length for region in regions)
            if (
                len(by_path) == 1
                and total * 2 >= os.fstat(source).st_size
                and _clone(source, destination)
            ):
                return [location.offset if location.length else 0 for location in locations]
            for region in regions:
                placed[region] = end
                _copy(source, destination, region, end)
                end += -(-region.length // _PAGE) * _PAGE
        finally:
            os.close(source)
    return [placed.get(location, 0) for location in locations]


def _clone(source: int, destination: int) -> bool:
    """Let a new file share all blocks of another.

    Returns False if the file system cannot.
    """
    if sys.platform != "linux":
        return False
    import fcntl

    try:
        fcntl.ioctl(destination, _FICLONE, source)
    except OSError:
        return False
    return True


def _copy(source: int, destination: int, region: ExternalLocation, position: int) -> None:
    """Copy a region to a position, inside the kernel if possible."""
    start, remaining = region.offset, region.length
    if sys.platform == "linux":
        try:
            while remaining and (
                count := os.copy_file_range(source, destination, remaining, start, position)
            ):
                start, position, remaining = start + count, position + count, remaining - count
        except OSError as error:
            if error.errno not in _NO_KERNEL_COPY:
                raise
    os.lseek(destination, position, os.SEEK_SET)
    while remaining:
        os.lseek(source, start, os.SEEK_SET)
        chunk = os.read(source, min(remaining, _CHUNK))
        if not chunk:
            raise ModelError(
                f"external data {region.path!r} was cut short while it was copied", hint="run again"
            )
        _write_all(destination, chunk)
        start, remaining = start + len(chunk), remaining - len(chunk)
