"""What only distributed tables have: `python -m pytest --citus`."""
