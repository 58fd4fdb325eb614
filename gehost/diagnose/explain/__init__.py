"""Explain why a pass did not match, by each candidate's nearest miss."""
