"""``python -m gehost``."""

from __future__ import annotations

from gehost.cli import main

if __name__ == "__main__":
    main()
