-- Moves due deliveries back to their stream, each exactly once.
-- KEYS[1] retry set or held set   KEYS[2] deliveries stream
-- KEYS[3] for a held set: the apps and push services with one
-- ARGV[1] the last due time to move, in ms   ARGV[2] limit   ARGV[3] app or push service
-- Returns the number of deliveries moved.
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
for _, member in ipairs(due) do
    redis.call('XADD', KEYS[2], '*', 'd', member)
    redis.call('ZREM', KEYS[1], member)
end
if KEYS[3] and redis.call('EXISTS', KEYS[1]) == 0 then
    redis.call('SREM', KEYS[3], ARGV[3])
end
return #due
