-- Counts one thing against caps as of now, whenever it was counted before, unless one of them is reached without it.
-- KEYS sorted sets   ARGV[1] the thing   ARGV[2] now in ms   then for each key its span in ms and how many are allowed
-- Returns 0, or the number of the first cap that is reached, in which case it counts no more.
local thing, now = ARGV[1], tonumber(ARGV[2])
local reached = 0
for n, key in ipairs(KEYS) do
    local span, most = tonumber(ARGV[1 + 2 * n]), tonumber(ARGV[2 + 2 * n])
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now - span)
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
