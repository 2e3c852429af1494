-- Takes what a webhook has got out of its queue, and says when it is to be looked at again.
-- KEYS[1] webhooks by due time   KEYS[2] the queue   ARGV[1] webhook   ARGV[2] due time in ms if something is left
-- ARGV[3...] entry ids
-- Returns how many are left.
for i = 3, #ARGV, 500 do
    redis.call('XDEL', KEYS[2], unpack(ARGV, i, math.min(i + 499, #ARGV)))
end
local left = redis.call('XLEN', KEYS[2])
if left > 0 then
    redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
else
    redis.call('ZREM', KEYS[1], ARGV[1])
    redis.call('DEL', KEYS[2])
end
return left
