"""A compile recorded rewrite by rewrite, and written as JSON or as one HTML page."""
