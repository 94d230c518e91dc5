"""What is asked of a database: the statements of each, and the dialect that fills them in."""
