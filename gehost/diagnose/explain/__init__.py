"""Explain why a pass did not match.

Names the nearest miss of each candidate.
"""
