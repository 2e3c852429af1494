-- Takes tokens of a bucket that fills at a steady rate (generic cell rate algorithm).
-- KEYS[1] bucket   ARGV[1] tokens a second   ARGV[2] capacity   ARGV[3] tokens to take
-- Returns the ms until the bucket holds a token again; 0 if it does now.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local interval = 1000 / tonumber(ARGV[1])
local full = tonumber(ARGV[2]) * interval
local due = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now) + tonumber(ARGV[3]) * interval
-- A huge request, or a step back of Redis's clock, costs at most the time to fill the bucket.
due = math.min(due, now + 2 * full)
redis.call('SET', KEYS[1], string.format('%.0f', due), 'PX', math.max(1, math.ceil(due - now)))
return math.max(0, math.ceil(due - now - full))
