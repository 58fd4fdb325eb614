"""Loading, running and reporting: what stands around the passes."""
