"""``gehost new``: a pass that works, with its test, to start from."""

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from pathlib import Path
from string import Template

from gehost.errors import OutputError, UsageError
from gehost.host.vendors import PASSES_DIR
from gehost.ir.files.save import write_bytes_atomic


def write_pass(name: str, root: str) -> list[Path]:
    """Write ``<root>/<vendor>/custom_fusion_passes/<pass>.py`` and its test; returns the files.

    Raises:
        UsageError: ``name`` is not ``vendor/pass`` in lower-case Python names, or a file exists
            already.
        OutputError: a file or directory cannot be written.
    """
    vendor, _, stem = name.partition("/")
    for part in (vendor, stem):
        if not re.fullmatch(r"[a-z][a-z0-9_]*", part) or keyword.iskeyword(part):
            raise UsageError(
                f'"{name}": wanted VENDOR/PASS in lower case letters, digits and _, as in '
                "acme/fuse_matmul_add"
            )
    home = Path(root) / vendor
    pass_name = (
        "".join(word.capitalize() for word in stem.removesuffix("_pass").split("_")) + "Pass"
    )
    wanted = {
        home / PASSES_DIR / f"{stem}.py": "pass.py.txt",
        home / "tests" / f"test_{stem}.py": "test_pass.py.txt",
    }
    for path in wanted:
        if path.exists():
            raise UsageError("exists already", where=path, hint="choose another name")
    for path, template in wanted.items():
        text = (files("gehost") / "templates" / template).read_text(encoding="utf-8")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"cannot make the directory: {error.strerror}", where=path.parent
            ) from error
        write_bytes_atomic(path, Template(text).safe_substitute(pass_name=pass_name).encode())
    return list(wanted)
