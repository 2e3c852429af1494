-- Ends claims on sends, each only if it is still the entry's own.
-- KEYS claims   ARGV for each the entry that claimed it, as claim_sends writes it
for n, key in ipairs(KEYS) do
    if redis.call('GET', key) == ARGV[n] then
        redis.call('UNLINK', key)
    end
end
return 0
