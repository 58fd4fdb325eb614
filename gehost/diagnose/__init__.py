"""Answers to authors and users: why a pattern did not match, which rewrite is wrong, whether a pass is right."""
