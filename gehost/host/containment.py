"""Loading somebody's file without letting it change the process around it."""

from __future__ import annotations

import os
import random
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress

import numpy as np


@contextmanager
def contained() -> Generator[None]:
    """Put back the working directory, ``sys.path``, warning filters and the state of the global random generators."""
    path, seed, numpy_seed = list(sys.path), random.getstate(), np.random.get_state(legacy=False)
    try:
        directory = os.getcwd()
    except OSError:  # it was removed while we stood in it
        directory = None
    try:
        with warnings.catch_warnings():
            yield
    finally:
        sys.path[:] = path
        random.setstate(seed)
        np.random.set_state(numpy_seed)
        if directory is not None:
            with suppress(OSError):
                os.chdir(directory)
