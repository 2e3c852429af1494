-- Takes the available tokens of a bucket, up to a limit; the bucket fills as in take_tokens.
-- KEYS[1] bucket   ARGV[1] tokens a second   ARGV[2] capacity   ARGV[3] limit
-- Returns the number of tokens taken.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local interval = 1000 / tonumber(ARGV[1])
local full = tonumber(ARGV[2]) * interval
local due = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now)
-- Later than a bucket can be due: Redis's clock has stepped back.
if due > now + full + interval then due = now end
local taken = math.min(tonumber(ARGV[3]), math.floor((now + full - due) / interval))
if taken <= 0 then return 0 end
due = due + taken * interval
redis.call('SET', KEYS[1], string.format('%.0f', due), 'PX', math.max(1, math.ceil(due - now)))
return taken
