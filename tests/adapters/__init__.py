"""Other frameworks in the same store."""
