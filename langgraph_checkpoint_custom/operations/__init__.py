"""What a saver does, one file a capability: which statements, in which order, and what their replies mean."""
