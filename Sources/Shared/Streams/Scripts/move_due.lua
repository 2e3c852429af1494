-- Moves retries that are due back to their stream, each exactly once.
-- KEYS[1] retry set   KEYS[2] deliveries stream   ARGV[1] now in ms   ARGV[2] how many at most
-- Returns how many were moved.
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
for _, member in ipairs(due) do
    redis.call('XADD', KEYS[2], '*', 'd', member)
    redis.call('ZREM', KEYS[1], member)
end
return #due
