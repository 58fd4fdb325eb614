"""Find the first rewrite of a compile that changes the numbers; write that match as files."""
