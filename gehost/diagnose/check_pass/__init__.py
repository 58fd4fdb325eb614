"""A pass checked on random instances of its own pattern, and on changed ones."""
