-- Counts an item against caps as of now, even if counted before, unless the other items reach one.
-- KEYS sorted sets   ARGV[1] item   ARGV[2] now in ms   then each key's window in ms and limit
-- Returns 0, or the index of the first cap that is reached; the item then no longer counts.
local thing, now = ARGV[1], tonumber(ARGV[2])
local reached = 0
for n, key in ipairs(KEYS) do
    local span, most = tonumber(ARGV[1 + 2 * n]), tonumber(ARGV[2 + 2 * n])
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now - span)
    -- Counted before the caller's clock stepped back. Other callers may be up to a minute ahead.
    redis.call('ZREMRANGEBYSCORE', key, now + 60000, '+inf')
    redis.call('ZREM', key, thing)
    if reached == 0 and redis.call('ZCARD', key) >= most then
        reached = n
    end
end
if reached > 0 then
    return reached
end
for n, key in ipairs(KEYS) do
    redis.call('ZADD', key, now, thing)
    redis.call('PEXPIRE', key, tonumber(ARGV[1 + 2 * n]))
end
return 0
