"""The SQL statements of each database, and the dialects that fill in their parameters."""
