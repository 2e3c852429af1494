-- Acknowledges entries and deletes them, so that nothing is ever trimmed blindly.
-- KEYS[1] stream   ARGV[1] group   ARGV[2...] entry ids
-- Returns how many were pending until now.
local acknowledged = 0
for i = 2, #ARGV, 500 do
    local last = math.min(i + 499, #ARGV)
    acknowledged = acknowledged + redis.call('XACK', KEYS[1], ARGV[1], unpack(ARGV, i, last))
    redis.call('XDEL', KEYS[1], unpack(ARGV, i, last))
end
return acknowledged
