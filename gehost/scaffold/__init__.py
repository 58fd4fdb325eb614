"""``gehost new``: a pass with its test to start from, or one for nodes of a model."""
