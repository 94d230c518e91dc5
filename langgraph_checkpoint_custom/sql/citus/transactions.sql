-- What a transaction begins with.

-- name: limit_waiting
-- differs: there are no batches. The threads of a batch are on several servers, and one that waits would hold up all.
