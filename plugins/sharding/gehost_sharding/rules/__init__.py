"""The rule table: operator -> factors, and a split's changes of the operator itself."""
