"""``gehost new``: a pass with its test to start from.

Or one for nodes of a model.
"""
