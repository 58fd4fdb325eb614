"""Check a pass on random instances of its own pattern, and on mutations of them."""
