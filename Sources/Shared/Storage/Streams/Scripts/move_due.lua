-- Moves deliveries that are due back to their stream, each exactly once.
-- KEYS[1] retry set, or what is held back of an app   KEYS[2] deliveries stream   KEYS[3] for an app: those of which something is held back
-- ARGV[1] now in ms   ARGV[2] how many at most   ARGV[3] the app
-- Returns how many were moved.
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
for _, member in ipairs(due) do
    redis.call('XADD', KEYS[2], '*', 'd', member)
    redis.call('ZREM', KEYS[1], member)
end
if KEYS[3] and redis.call('EXISTS', KEYS[1]) == 0 then
    redis.call('SREM', KEYS[3], ARGV[3])
end
return #due
