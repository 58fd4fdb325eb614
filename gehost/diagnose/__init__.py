"""Answers about a compile: why a pass did not match, what a node was before."""
