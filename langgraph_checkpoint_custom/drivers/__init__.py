"""Connections, transactions, retries and batching for each database, sync and async."""
