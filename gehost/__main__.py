"""``python -m gehost``."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    if sys.path[:1] == [os.getcwd()]:
        del sys.path[0]  # python -m puts it first: a numpy.py there would be imported

    from gehost.cli import main

    main()
