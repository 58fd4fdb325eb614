"""Record a compile rewrite by rewrite; write it as JSON or as one HTML page."""
