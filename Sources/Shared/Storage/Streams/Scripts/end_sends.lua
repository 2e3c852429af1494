-- Releases claims on deliveries that still belong to their entry.
-- KEYS claims   ARGV the claiming entry of each, as written by claim_sends
for n, key in ipairs(KEYS) do
    if redis.call('GET', key) == ARGV[n] then
        redis.call('UNLINK', key)
    end
end
return 0
