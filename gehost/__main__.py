"""``python -m gehost``."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    try:
        here = os.getcwd()
    except FileNotFoundError:  # then it is not in sys.path, and the command says so
        here = ""
    if here and sys.path[:1] == [here]:
        del sys.path[0]  # python -m puts it first: a numpy.py there would be imported

    from gehost.cli import main

    main()
