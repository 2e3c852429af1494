-- Counts an item against caps unless one is reached; an item counts once.
-- KEYS sorted sets   ARGV[1] item   ARGV[2] now in ms   ARGV[3] 1 for a recount, else 0
-- then each key's window in ms and limit
-- A recount counts the item as of now, even if counted before, unless the other items reach a cap.
-- Returns 0, or the index of the first cap that is reached; a recounted item then no longer
-- counts.
local thing, now = ARGV[1], tonumber(ARGV[2])
if ARGV[3] == '1' then
    for _, key in ipairs(KEYS) do redis.call('ZREM', key, thing) end
end
for n, key in ipairs(KEYS) do
    local span, most = tonumber(ARGV[2 + 2 * n]), tonumber(ARGV[3 + 2 * n])
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now - span)
    -- Counted before the caller's clock stepped back. Other callers may be up to a minute ahead.
    redis.call('ZREMRANGEBYSCORE', key, now + 60000, '+inf')
    if not redis.call('ZSCORE', key, thing) and redis.call('ZCARD', key) >= most then
        return n
    end
end
for n, key in ipairs(KEYS) do
    redis.call('ZADD', key, 'NX', now, thing)
    redis.call('PEXPIRE', key, tonumber(ARGV[2 + 2 * n]))
end
return 0
