"""The modules that pass files import; each gathers what GE documents there."""
