-- Releases claims on deliveries that still belong to their entry.
-- KEYS claims   ARGV the claiming entry of each, as written by claim_sends
for i = 1, #KEYS, 500 do
    local last = math.min(i + 499, #KEYS)
    local mine = {}
    for n, holder in ipairs(redis.call('MGET', unpack(KEYS, i, last))) do
        if holder == ARGV[i + n - 1] then
            mine[#mine + 1] = KEYS[i + n - 1]
        end
    end
    if #mine > 0 then
        redis.call('UNLINK', unpack(mine))
    end
end
return 0
