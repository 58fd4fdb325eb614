"""Find and write the first rewrite of a compile that changes numbers."""
