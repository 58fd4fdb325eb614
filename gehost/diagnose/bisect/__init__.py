"""Find the first rewrite of a compile that changes the numbers.

Writes that match as files.
"""
