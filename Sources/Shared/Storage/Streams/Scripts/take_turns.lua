-- Takes the available tokens of a bucket, up to a limit (generic cell rate algorithm).
-- KEYS[1] bucket   ARGV[1] tokens a second   ARGV[2] capacity   ARGV[3] limit
-- Returns the number of tokens taken and the ms until the next one.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local interval = 1000 / tonumber(ARGV[1])
local full = tonumber(ARGV[2]) * interval
local due = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now)
-- Later than a bucket can be due: Redis's clock has stepped back.
if due > now + full + interval then due = now end
local taken = math.max(0, math.min(tonumber(ARGV[3]), math.floor((full - (due - now)) / interval)))
due = due + taken * interval
if taken > 0 then
    redis.call('SET', KEYS[1], string.format('%.3f', due), 'PX', math.max(1, math.ceil(due - now)))
end
return {taken, math.max(0, math.ceil(due + interval - now - full))}
