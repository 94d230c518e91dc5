"""Connections, transactions, retries and batching for each database, sync next to async."""
