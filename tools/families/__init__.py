"""Attention and rotary embeddings of model families: exported small, compiled, counted, compared."""
