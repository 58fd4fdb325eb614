"""The report of a compile as data and as a page."""
