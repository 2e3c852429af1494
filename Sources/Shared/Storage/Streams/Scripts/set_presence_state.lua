-- Changes the state of a registered connection.
-- KEYS[1] presence of a user   ARGV[1] connection   ARGV[2] state   ARGV[3] change time in ms
-- Returns 1 if it was registered; otherwise adds nothing and returns 0.
local text = redis.call('HGET', KEYS[1], ARGV[1])
if not text then return 0 end
local changed = string.gsub(text, '^(1 %S+ %S+) %S+ (%S+).*$', '%1 ' .. ARGV[2] .. ' %2 ' .. ARGV[3])
redis.call('HSET', KEYS[1], ARGV[1], changed)
return 1
