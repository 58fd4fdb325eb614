"""Check a pass on random and mutated instances of its own pattern."""
