"""Finds and loads vendor files: ``<root>/<vendor>/custom_fusion_passes/*.py``, in lexical order."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from gehost.errors import UsageError, VendorError, deepest_line, described
from gehost.host.containment import exclusive, process_state_restored
from gehost.location import SourceLocation
from gehost.shipped import shipped_directory
from gehost.spelling import hint, is_misspelled

PASSES_DIR = "custom_fusion_passes"
PACKAGE = "gehost_vendors"
BY_PATH = "_ge_py_pass_"
"""Start of the names of modules that a path of passes holds."""
_OWN = (PACKAGE, BY_PATH)
_HIDDEN = "the name starts with"
_MOST_LOOKED_AT = 200
"""Number of directories searched for vendors below a root that holds none; it may be ``/``."""


class VendorFile(NamedTuple):
    """A vendor's module or package."""

    vendor: str
    path: Path
    module_name: str
    """``gehost_vendors.<vendor>.<stem>``; ``gehost_vendors_2`` and so on if another root has a
    vendor of the same name.
    """
    plugin_name: str
    """``<vendor>/<stem>``; messages about its hooks use this name."""

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def directory(self) -> Path:
        """The vendor's ``custom_fusion_passes``."""
        return self.path.parents[1 if self.is_package else 0]


class VendorFiles(NamedTuple):
    """The files found below the directories of vendors."""

    files: list[VendorFile]
    """In load order."""
    skipped: list[str]
    """Entries that are not loaded, and why."""
    vendors: list[str]
    unexpected: int
    """Number of files skipped for a reason other than a ``_`` or ``.`` in front of the name."""


def find_vendor_files(
    roots: Sequence[str | os.PathLike[str]], paths: Sequence[str | os.PathLike[str]] = ()
) -> VendorFiles:
    """Find vendor files below ``roots`` in load order, and skipped files.

    Args:
        roots: directories of vendors.
        paths: files of passes, and directories of them, that belong to no vendor; they are last.

    Raises:
        UsageError: a root is not a readable directory, or is itself a vendor's.
        VendorError: a path is no Python file and no directory.
    """
    try:
        result = _find(roots)
        result.files.extend(_files_at(paths, result.skipped))
        return result
    except OSError as error:
        raise UsageError(
            f"cannot look for vendor files: {error.strerror}", where=error.filename
        ) from error


def _find(roots: Sequence[str | os.PathLike[str]]) -> VendorFiles:
    results: list[VendorFile] = []
    vendors: list[str] = []
    skipped: list[str] = []
    loaded: set[str] = set()
    packages: set[str] = set()
    if not all(os.fspath(root) for root in roots):
        raise UsageError("a directory of vendors has no name; give one, as in --vendors vendors")
    for root in roots:
        for home in vendor_directories(root, skipped):
            vendor, directory = home.name, home / PASSES_DIR
            vendors.append(vendor)
            count = 1  # another root may have a vendor of the same name
            while (
                package := f"{PACKAGE}{f'_{count}' if count > 1 else ''}.{vendor.replace('.', '_')}"
            ) in packages:
                count += 1
            packages.add(package)
            number = f"#{count}" if count > 1 else ""
            for entry in sorted(os.listdir(directory)):
                if entry == "__pycache__":
                    continue
                path, reason = _loadable(directory / entry)
                real = os.path.realpath(path)
                if not reason and real in loaded:
                    reason = "loaded already"
                if reason:
                    skipped.append(f"{directory / entry}: {reason}")
                    continue
                loaded.add(real)
                stem = entry.removesuffix(".py")
                module_name = f"{package}.{stem.replace('.', '_')}"
                results.append(VendorFile(vendor, path, module_name, f"{vendor}/{stem}{number}"))
    hidden = sum(line.rpartition(": ")[2].startswith(_HIDDEN) for line in skipped)
    return VendorFiles(results, skipped, vendors, len(skipped) - hidden)


def _files_at(paths: Sequence[str | os.PathLike[str]], skipped: list[str]) -> list[VendorFile]:
    """Return the files at ``paths``, each once; a directory's by name."""
    files: dict[str, VendorFile] = {}
    for argument in paths:
        path = Path(os.path.abspath(argument))
        if not path.exists():
            raise VendorError("no such file or directory of passes", where=argument)
        if path.is_dir():
            entries = [path / entry for entry in sorted(os.listdir(path)) if entry != "__pycache__"]
            if all(_loadable(entry)[1] for entry in entries):
                raise VendorError(
                    "no file of passes in this directory",
                    where=argument,
                    hint="wanted .py files or packages; names with _ first do not count",
                )
        else:
            entries = [path]
            if path.suffix != ".py":
                raise VendorError("a file of passes ends in .py", where=argument)
        for entry in entries:
            file, reason = _loadable(entry) if path.is_dir() else (entry, "")
            if reason:
                skipped.append(f"{entry}: {reason}")
                continue
            real = os.path.realpath(file)
            name = _module_of_path(entry, real)
            files.setdefault(real, VendorFile(entry.parent.name, file, name, str(entry)))
    return list(files.values())


def _module_of_path(entry: Path, real: str) -> str:
    """Return GE's name for the module of a path: ``_ge_py_pass_{stem}_{hash}``."""
    import hashlib  # few compiles load files by path

    plain = re.sub(r"\W", "_", entry.name.removesuffix(".py"))
    return f"{BY_PATH}{plain}_{hashlib.sha256(real.encode()).hexdigest()[:8]}"


def vendor_directories(root: str | os.PathLike[str], skipped: list[str]) -> list[Path]:
    """List the vendors of a directory, or the one that ``PACKAGE:VENDOR`` names.

    Args:
        skipped: gets the directories that are no vendors, and why.

    Raises:
        UsageError: as ``find_vendor_files``; no installed package ships this vendor.
        VendorError: the shipped vendor holds no passes.
    """
    shipped = shipped_directory(root)
    if shipped is None:
        path = Path(os.path.abspath(root))
        return [path / vendor for vendor in _vendors_of(path, skipped)]
    if not (shipped / PASSES_DIR).is_dir():
        raise VendorError(f"{shipped} holds no {PASSES_DIR}", where=root)
    return [shipped]


def _vendors_of(root: Path, skipped: list[str]) -> list[str]:
    if root.exists() and not root.is_dir():
        raise UsageError(
            "no such directory of vendors, it is a file",
            where=root,
            hint="give the one that holds "
            f"<vendor>/{PASSES_DIR}/{(root.name if root.suffix == '.py' else '*.py')}",
        )
    if not root.is_dir():
        beside = [entry.name for entry in _directories(root.parent)]
        raise UsageError(
            broken_link(root) or f"no such directory of vendors{hint(root.name, beside)}",
            where=root,
        )
    if (root / PASSES_DIR).is_dir():
        raise UsageError(
            "this is one vendor's directory",
            where=root,
            hint=f"give the one that holds it: {root.parent}",
        )
    for parent in (root, *root.parents):
        if parent.name == PASSES_DIR:
            raise UsageError(
                f"this is {('' if parent is root else 'in ')}one vendor's directory of passes",
                where=root,
                hint=f"give the one that holds the vendor: {parent.parent.parent}",
            )
    vendors: list[str] = []
    for entry in sorted(os.listdir(root)):
        hidden = entry.startswith(("_", "."))
        broken = [
            f"{link}: {lost}"
            for link in (root / entry, root / entry / PASSES_DIR)
            if not hidden and (lost := broken_link(link))
        ]
        if broken:
            skipped.extend(broken)
        elif not (root / entry).is_dir():
            continue
        elif hidden:
            skipped.append(f"{root / entry}: {_HIDDEN} {entry[0]}")
        elif not (root / entry / PASSES_DIR).is_dir():
            near = [
                inner.name
                for inner in _directories(root / entry)
                if is_misspelled(inner.name, PASSES_DIR)
            ]
            intended = f"; is {near[0]} meant?" if near else ""
            skipped.append(f"{root / entry}: no directory {PASSES_DIR} in it{intended}")
        else:
            vendors.append(entry)
    if not vendors and (below := _roots_below(root)):
        raise UsageError(
            "no vendor is in it",
            where=root,
            hint=f"give the directory that holds them: {' or '.join(map(str, below))}",
        )
    return vendors


_BROKEN = "a link to "


def broken_link(path: Path) -> str:
    """Return what is wrong with a link to nothing; "" for all other paths."""
    if path.exists() or not path.is_symlink():
        return ""
    return f"{_BROKEN}{os.readlink(path)}, which does not exist"


def broken_links(skipped: Sequence[str]) -> list[str]:
    """Return the lines about links to nothing, which are always a mistake."""
    return [line for line in skipped if f": {_BROKEN}" in line]


def _directories(path: Path) -> list[Path]:
    """Return a directory's directories by name, none if it is unreadable."""
    try:
        return sorted(entry for entry in path.iterdir() if entry.is_dir())[:_MOST_LOOKED_AT]
    except OSError:
        return []


def _roots_below(root: Path) -> list[Path]:
    """Return the nearest directories of vendors, up to two levels below."""
    level = [root]
    for _ in range(2):
        level = [
            inner
            for path in level
            for inner in _directories(path)
            if not inner.name.startswith((".", "_"))
        ][:_MOST_LOOKED_AT]
        results = [
            path
            for path in level
            if any((entry / PASSES_DIR).is_dir() for entry in _directories(path))
        ]
        if results:
            return results[:3]
    return []


def _loadable(path: Path) -> tuple[Path, str]:
    """Return the file to load and, if it must not be, why."""
    if path.name.startswith(("_", ".")):
        return path, f"{_HIDDEN} {path.name[0]}"
    if path.is_dir():
        init = path / "__init__.py"
        return init, "" if os.path.lexists(init) else "a directory without __init__.py"
    # what a broken link stands for is unknown, so that loading it fails
    return path, "" if path.suffix == ".py" or broken_link(path) else "no Python file"


class VendorModules:
    """The loaded vendor modules of one host.

    They are in ``sys.modules`` only while the host works, so that hosts share nothing.
    """

    def __init__(self, import_paths: Sequence[str] = ()) -> None:
        """Keep no modules yet; vendor files also import those of the directories."""
        self._paths = list(import_paths)
        self._names = {
            entry.removesuffix(".py")
            for path in self._paths
            for entry in os.listdir(path)
            if not entry.startswith("_")
        }
        """Names of the modules in these directories."""
        self._modules: dict[str, ModuleType] = {}
        self._installed = False

    @contextmanager
    def installed(self) -> Generator[None]:
        """Install the modules in ``sys.modules``, so that relative imports work.

        Output goes to stderr; changes to the process are undone at the end. A block inside such a
        block changes nothing.
        """
        with exclusive():
            if self._installed:
                yield
                return
            before = self._take()
            sys.modules.update(self._modules)
            self._installed = True
            try:
                with process_state_restored(), redirect_stdout(sys.stderr):
                    sys.path[:0] = self._paths
                    yield
            finally:
                self._installed = False
                self._modules = self._take()
                sys.modules.update(before)

    def _take(self) -> dict[str, ModuleType]:
        """Remove the vendors' modules, and those of the import paths, from ``sys.modules``."""
        listing = " ".join(sys.modules)
        if (
            PACKAGE not in listing
            and BY_PATH not in listing
            and self._names.isdisjoint(sys.modules)
        ):
            return {}  # fast where thousands of modules are loaded
        selected = {
            name: module
            for name, module in sys.modules.items()
            if name.startswith(_OWN) or name.partition(".")[0] in self._names
        }
        for name in selected:
            del sys.modules[name]
        return selected

    def load(self, file: VendorFile) -> ModuleType:
        """Import a vendor file; call inside ``installed``.

        A file that another one imported is not imported again.

        Raises:
            VendorError: its import raised an exception; the message has file and line.
        """
        cached = sys.modules.get(file.module_name)
        if cached is not None:
            if cached.__file__ != str(file.path):
                raise VendorError(
                    f"{cached.__file__} is a module of the same name",
                    where=file.path,
                    hint="rename one",
                )
            return cached
        if broken := broken_link(file.path):
            raise VendorError(broken, where=file.path, hint="remove it, or make it point to a file")
        if file.path.exists() and not file.path.is_file():
            raise VendorError("not a regular file", where=file.path)
        _make_packages(file)
        before = set(sys.modules)
        try:
            with process_state_restored():
                spec = importlib.util.spec_from_file_location(
                    file.module_name,
                    file.path,
                    submodule_search_locations=[str(file.path.parent)] if file.is_package else None,
                )
                assert spec is not None
                assert spec.loader is not None
                module = sys.modules[file.module_name] = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
                return module
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            for name in set(sys.modules) - before:
                if f"{name}.".startswith(f"{file.module_name}."):
                    del sys.modules[name]
            if isinstance(error, VendorError) and str(error).startswith(str(file.directory)):
                raise  # its message has the right line, which may not be where it was raised
            where = _fault(error, file)
            raise VendorError(described(error, context=where), where=where) from error
        finally:
            # a file by path may lie beside anything, as gehost itself in a clone
            if not file.module_name.startswith(BY_PATH):
                _forget_strays(before, file.directory.parent)


def _make_packages(file: VendorFile) -> None:
    """Create a vendor's empty packages with the search path for siblings."""
    package = file.module_name.rpartition(".")[0]
    if not package:  # of a path of passes
        return
    top = package.partition(".")[0]
    for name, path in ((top, []), (package, [str(file.directory)])):
        if name not in sys.modules:
            sys.modules[name] = ModuleType(name)
            sys.modules[name].__path__ = path


def modules_of(module: ModuleType) -> list[ModuleType]:
    """Return a package's imported modules, then the module itself.

    Helpers (``_name``) are included.
    """
    helpers = f"{module.__name__.rpartition('.')[0]}._"
    listing = " ".join(sys.modules)  # fast where thousands of modules are loaded
    if f"{module.__name__}." not in listing and helpers not in listing:
        return [module]
    return [
        *(
            part
            for name, part in list(sys.modules.items())
            if name.startswith((f"{module.__name__}.", helpers))
        ),
        module,
    ]


def is_inside(part: ModuleType, module: ModuleType) -> bool:
    """Whether ``part`` is a module of the package ``module``."""
    return part.__name__.startswith(f"{module.__name__}.")


def _forget_strays(before: set[str], directory: Path) -> None:
    """Drop modules that a vendor imported from its own directory through ``sys.path``.

    The next vendor may have modules of the same names.
    """
    inside = os.path.join(directory, "")
    for name in set(sys.modules) - before:
        module: Any = sys.modules[name]  # a vendor may put any object there
        path = module.__dict__.get("__file__") if issubclass(type(module), ModuleType) else None
        if isinstance(path, str) and path.startswith(inside) and not name.startswith(_OWN):
            del sys.modules[name]


def fault_of(error: BaseException, file: VendorFile) -> VendorError:
    """Turn a later error of a vendor file into its ``VendorError``.

    The error came after the import; the new one names the file.
    """
    if isinstance(error, VendorError) and str(file.directory) in str(error):
        return error
    where = file.path if isinstance(error, VendorError) else _fault(error, file)
    failure = VendorError(described(error), where=where)
    failure.__cause__ = error
    return failure


def _fault(error: BaseException, file: VendorFile) -> SourceLocation:
    """Return the line at fault.

    It is the syntax error's line, or the deepest one in the vendor's files.
    """
    if isinstance(error, SyntaxError) and error.filename and os.path.exists(error.filename):
        return SourceLocation(error.filename, error.lineno or 1)
    return deepest_line(error, str(file.directory)) or SourceLocation(str(file.path), 1)
