"""Explain why a pass did not match, with the nearest miss of each candidate."""
