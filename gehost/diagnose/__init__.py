"""Answers about a compile: what it did, and why."""
