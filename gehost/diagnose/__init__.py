"""Tools that answer questions about a compile: report, explain, bisect, blame."""
