-- Claims sends for the entries of one stream; refuses what another entry claims that is not settled yet.
-- KEYS[1..3] the provider's streams, the urgent lane first; then a claim an entry
-- ARGV[1] the number of the entries' stream   ARGV[2] for how many ms at most   then the entries' ids
-- Returns the numbers, from 1, of the claims that were refused.
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
