-- Times of claims, in seconds since 1970.

-- fragment: now
(julianday('now') - 2440587.5) * 86400.0

-- fragment: expiry
(julianday('now') - 2440587.5) * 86400.0 + :ttl_seconds

-- fragment: expiry_in_seconds
expires_at
