-- Notes a connection's bookmark and drops the user's oldest ones beyond a limit.
-- KEYS[1] the user's bookmarks
-- ARGV[1] connection   ARGV[2] client   ARGV[3] version
-- ARGV[4] when a client that has left was last heard from, in ms; else empty
-- ARGV[5] its claim, in ms; empty to keep the one that it has
-- ARGV[6] now in ms   ARGV[7] lifetime in ms   ARGV[8] limit
-- The user was erased a moment ago, and the socket's gateway does not know yet.
if redis.call('HEXISTS', KEYS[1], 'erased') == 1 then return 0 end
local pattern = '^(1 (%S+) %S+ %d) (%d+) (%d+)$'
local claim = ARGV[5]
if claim == '' then
    claim = select(3, string.match(redis.call('HGET', KEYS[1], ARGV[1]) or '', pattern)) or '0'
end
if ARGV[4] ~= '' then
    -- The earliest claim since the client was last heard from uses up the bookmark.
    local first, taker, text
    local fields = redis.call('HGETALL', KEYS[1])
    for n = 1, #fields, 2 do
        local head, client, since, noted = string.match(fields[n + 1], pattern)
        since = tonumber(since)
        if client == ARGV[2] and fields[n] ~= ARGV[1] and since > tonumber(ARGV[4])
            and (not first or since < first) then
            -- The connection's own claim is still to be met.
            first, taker, text = since, fields[n], head .. ' ' .. claim .. ' ' .. noted
        end
    end
    if taker then
        redis.call('HSET', KEYS[1], taker, text)
        return redis.call('HDEL', KEYS[1], ARGV[1])
    end
end
local left = ARGV[4] == '' and 0 or 1
local text = table.concat({ '1', ARGV[2], ARGV[3], left, claim, ARGV[6] }, ' ')
redis.call('HSET', KEYS[1], ARGV[1], text)
redis.call('PEXPIRE', KEYS[1], ARGV[7])
local excess = redis.call('HLEN', KEYS[1]) - tonumber(ARGV[8])
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
