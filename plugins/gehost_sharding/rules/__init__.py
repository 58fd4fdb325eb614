"""The rule table: operator -> factors, and what a split changes in the operator itself."""
