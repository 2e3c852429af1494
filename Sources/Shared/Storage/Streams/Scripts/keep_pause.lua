-- Keeps until when an account is left alone; a later moment that is known stays.
-- KEYS[1] a provider's pauses   ARGV[1] account   ARGV[2] until when, in ms   ARGV[3] now, in ms
-- What is over is taken out, and the key ends with the last; by the callers' clock, which need not be that of Redis.
local now = tonumber(ARGV[3])
local known = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or 0) or 0
if known < tonumber(ARGV[2]) then redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) end
local last = now
local fields = redis.call('HGETALL', KEYS[1])
for index = 1, #fields, 2 do
    local moment = tonumber(fields[index + 1]) or 0
    if moment <= now then
        redis.call('HDEL', KEYS[1], fields[index])
    else
        last = math.max(last, moment)
    end
end
return redis.call('PEXPIRE', KEYS[1], last - now)
