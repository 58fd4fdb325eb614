"""The built-in clean-up: dead nodes, identities, constant folding, common sub-expressions."""

from gehost.passes.cleanup.cleaner import CleanUpResult, clean_up, take_branches

__all__ = ["CleanUpResult", "clean_up", "take_branches"]
