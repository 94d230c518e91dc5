"""The SQL of each database: text and parameters, no connection."""
