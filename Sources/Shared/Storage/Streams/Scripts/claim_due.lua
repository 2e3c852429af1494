-- Claims due members by raising their score; they stay until the next stage has them.
-- KEYS[1] sorted set   ARGV[1] now in ms   ARGV[2] new score in ms   ARGV[3] limit
-- Returns the claimed members.
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[3])
for _, member in ipairs(due) do
    redis.call('ZADD', KEYS[1], ARGV[2], member)
end
return due
