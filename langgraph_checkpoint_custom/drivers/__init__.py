"""How statements reach each database: connections, transactions, retry; sync next to async."""
