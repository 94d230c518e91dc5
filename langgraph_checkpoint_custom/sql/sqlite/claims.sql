-- Claims of threads.

-- name: select_lost_claim
SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM claims WHERE thread_id = :thread_id AND token = :claim)

-- name: claim_sweep
-- Claims that expired more than a day ago and were not taken over.
DELETE FROM claims WHERE thread_id IN (
    SELECT thread_id FROM claims
    WHERE expires_at < (julianday('now') - 2440588.5) * 86400.0 ORDER BY thread_id LIMIT 100
)

-- name: claim_take
-- A claim that has expired is taken over. The same token may be sent again, after an answer was lost.
INSERT INTO claims AS c (thread_id, token, owner, expires_at)
VALUES (
    :thread_id, :claim, :owner, (julianday('now') - 2440587.5) * 86400.0 + :ttl_seconds
)
ON CONFLICT (thread_id) DO UPDATE
SET token = excluded.token, owner = excluded.owner, expires_at = excluded.expires_at
WHERE c.expires_at <= (julianday('now') - 2440587.5) * 86400.0 OR c.token = excluded.token

-- name: claim_holder
SELECT token, owner, expires_at FROM claims
WHERE thread_id = :thread_id

-- name: renew_claim
UPDATE claims SET expires_at = (julianday('now') - 2440587.5) * 86400.0 + :ttl_seconds
WHERE thread_id = :thread_id AND token = :claim
RETURNING token

-- name: release_claim
DELETE FROM claims WHERE thread_id = :thread_id AND token = :claim
RETURNING token
