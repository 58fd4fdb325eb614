"""``gehost new``: write a pass and its test, also for given nodes."""
