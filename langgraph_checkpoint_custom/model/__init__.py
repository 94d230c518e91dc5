"""What there is: keys, rows, records, filters."""
