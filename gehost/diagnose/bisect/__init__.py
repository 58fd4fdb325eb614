"""The first rewrite of a compile that changes the numbers, and that match as files."""
