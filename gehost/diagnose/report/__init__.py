"""Record a compile rewrite by rewrite.

Writes it as JSON or as one HTML page.
"""
