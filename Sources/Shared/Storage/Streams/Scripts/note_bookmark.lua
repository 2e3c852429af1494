-- Notes a connection's bookmark and drops the user's oldest ones beyond a limit.
-- KEYS[1] the user's bookmarks
-- ARGV[1] connection   ARGV[2] bookmark   ARGV[3] lifetime in ms   ARGV[4] limit
-- The user was erased a moment ago, and the socket's gateway does not know yet.
if redis.call('HEXISTS', KEYS[1], 'erased') == 1 then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
local excess = redis.call('HLEN', KEYS[1]) - tonumber(ARGV[4])
if excess > 0 then
    local found = {}
    local fields = redis.call('HGETALL', KEYS[1])
    for n = 1, #fields, 2 do
        if fields[n] ~= ARGV[1] then
            -- The last number is when it was noted.
            found[#found + 1] = { tonumber(string.match(fields[n + 1], '(%d+)$') or '0'), fields[n] }
        end
    end
    table.sort(found, function(a, b) return a[1] < b[1] or a[1] == b[1] and a[2] < b[2] end)
    for n = 1, math.min(excess, #found) do redis.call('HDEL', KEYS[1], found[n][2]) end
end
return 0
