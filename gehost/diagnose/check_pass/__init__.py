"""Check a pass on random instances of its own pattern.

Also on mutations of them.
"""
