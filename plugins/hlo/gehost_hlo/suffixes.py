"""Names of files that are read as HLO text."""

SUFFIXES = (".hlo", ".hlo.txt")
