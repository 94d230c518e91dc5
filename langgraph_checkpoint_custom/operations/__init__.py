"""What a saver does, one file for each capability: the statements, their order, and what their replies mean."""
