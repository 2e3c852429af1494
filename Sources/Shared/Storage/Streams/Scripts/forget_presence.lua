-- Removes connections of a user whose value is unchanged; one that registered again stays.
-- KEYS[1] the user's hash   ARGV[1...] connection, value, connection, value ...
-- Returns the number of connections removed.
local removed = 0
for i = 1, #ARGV, 2 do
    if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then
        removed = removed + redis.call('HDEL', KEYS[1], ARGV[i])
    end
end
return removed
