-- Acknowledges and deletes entries, so that no entry is trimmed before it is finished.
-- KEYS[1] stream   ARGV[1] group   ARGV[2...] entry ids
-- Returns the number of entries that were pending.
local acknowledged = 0
for i = 2, #ARGV, 500 do
    local last = math.min(i + 499, #ARGV)
    acknowledged = acknowledged + redis.call('XACK', KEYS[1], ARGV[1], unpack(ARGV, i, last))
    redis.call('XDEL', KEYS[1], unpack(ARGV, i, last))
end
return acknowledged
