-- Keeps the end of an account's pause unless a later one is known.
-- KEYS[1] a provider's pauses   ARGV[1] account   ARGV[2] end in ms   ARGV[3] now in ms
-- ARGV[4] latest possible end in ms; a later one was kept before the caller's clock stepped back
-- Removes ended pauses, and an empty key, by the caller's clock, which may differ from Redis's.
local now, latest = tonumber(ARGV[3]), tonumber(ARGV[4])
local known = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or 0) or 0
if known < tonumber(ARGV[2]) or known > latest then redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) end
local last = now
local fields = redis.call('HGETALL', KEYS[1])
for index = 1, #fields, 2 do
    local moment = tonumber(fields[index + 1]) or 0
    if moment <= now or moment > latest then
        redis.call('HDEL', KEYS[1], fields[index])
    else
        last = math.max(last, moment)
    end
end
return redis.call('PEXPIRE', KEYS[1], last - now)
