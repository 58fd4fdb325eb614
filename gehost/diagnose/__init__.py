"""Answers about a compile: its report, why a pass did not match, which rewrite is wrong, a
node's history.
"""
