"""Keys, rows, records and metadata filters."""
