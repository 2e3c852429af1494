-- Claims deliveries for entries of one stream, except those that another unsettled entry claimed.
-- KEYS[1..3] the provider's streams, most urgent lane first; then one claim per entry
-- ARGV[1] index of the entries' stream   ARGV[2] longest claim in ms   then the entry ids
-- Returns the refused claims by index, from 1.
local refused = {}
for n = 4, #KEYS do
    local mine = ARGV[1] .. ':' .. ARGV[n - 1]
    if not redis.call('SET', KEYS[n], mine, 'NX', 'PX', ARGV[2]) then
        local holder = redis.call('GET', KEYS[n])
        local stream, entry = string.match(holder, '^([123]):(.+)$')
        if holder ~= mine and stream and #redis.call('XRANGE', KEYS[tonumber(stream)], entry, entry) > 0 then
            refused[#refused + 1] = n - 3
        else
            redis.call('SET', KEYS[n], mine, 'PX', ARGV[2])
        end
    end
end
return refused
