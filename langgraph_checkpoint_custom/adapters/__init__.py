"""Bridges to things that this package does not own."""
