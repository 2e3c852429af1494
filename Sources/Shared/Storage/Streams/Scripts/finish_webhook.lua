-- Removes sent events from a webhook's queue and sets the next due time.
-- KEYS[1] webhooks by due time   KEYS[2] queue   ARGV[1] webhook
-- ARGV[2] due time in ms if events are left, or empty to leave it   ARGV[3...] entry ids
-- Returns the number of events left.
for i = 3, #ARGV, 500 do
    redis.call('XDEL', KEYS[2], unpack(ARGV, i, math.min(i + 499, #ARGV)))
end
local left = redis.call('XLEN', KEYS[2])
-- Another dispatcher may have claimed the webhook, and removes the queue if it is empty.
if ARGV[2] == '' then return left end
if left > 0 then
    redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
else
    redis.call('ZREM', KEYS[1], ARGV[1])
    redis.call('DEL', KEYS[2])
end
return left
