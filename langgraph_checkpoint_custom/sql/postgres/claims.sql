-- Times of claims: SQLite has no type for them, and other functions.

-- fragment: now
statement_timestamp()

-- fragment: expiry
statement_timestamp() + make_interval(secs => %(ttl_seconds)s)

-- fragment: expiry_in_seconds
extract(epoch FROM expires_at)::float8
