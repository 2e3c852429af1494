-- Claims due members by raising their score; they stay until the next stage has them.
-- KEYS[1] sorted set   ARGV[1] now in ms   ARGV[2] new score in ms   ARGV[3] limit
-- ARGV[4] number of due members among which critical ones come first, with an eighth for the
-- others; without it, the oldest come first
-- Returns the claimed members.
local limit = tonumber(ARGV[3])
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, limit)
if ARGV[4] and #due == limit then
    local critical, others = {}, {}
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[4])) do
        local list = string.find(member, '^%S+ %S+ critical ') and critical or others
        list[#list + 1] = member
    end
    due = {}
    local most = math.max(limit - math.ceil(limit / 8), limit - #others)
    for n = 1, math.min(#critical, most) do due[n] = critical[n] end
    for n = 1, limit - #due do due[#due + 1] = others[n] end
end
for _, member in ipairs(due) do
    redis.call('ZADD', KEYS[1], ARGV[2], member)
end
return due
