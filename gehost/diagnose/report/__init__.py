"""Record a compile rewrite by rewrite, as JSON or an HTML page."""
