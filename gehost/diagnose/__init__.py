"""Answers about a compile: what it did, why a pass did not match, which rewrite is wrong, what a
node was before.
"""
