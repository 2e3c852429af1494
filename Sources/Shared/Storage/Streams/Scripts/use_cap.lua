-- Counts one thing against caps, unless one of them is reached; a thing that was counted before counts no more.
-- KEYS sorted sets   ARGV[1] the thing   ARGV[2] now in ms   then for each key its span in ms and how many are allowed
-- Returns 0, or the number of the first cap that is reached.
local thing, now = ARGV[1], tonumber(ARGV[2])
for n, key in ipairs(KEYS) do
    local span, most = tonumber(ARGV[1 + 2 * n]), tonumber(ARGV[2 + 2 * n])
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now - span)
    if not redis.call('ZSCORE', key, thing) and redis.call('ZCARD', key) >= most then
        return n
    end
end
for n, key in ipairs(KEYS) do
    redis.call('ZADD', key, 'NX', now, thing)
    redis.call('PEXPIRE', key, tonumber(ARGV[1 + 2 * n]))
end
return 0
