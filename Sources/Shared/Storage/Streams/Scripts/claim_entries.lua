-- Claims entries that one consumer still has and that have been pending for long enough.
-- KEYS[1] stream   ARGV[1] group   ARGV[2] that consumer   ARGV[3] new consumer
-- ARGV[4] shortest idle time in ms   ARGV[5] number of deliveries afterwards, or empty for one more
-- ARGV[6] most bytes of an entry   ARGV[7] the only field of a larger one   ARGV[8...] entry ids
-- Returns the claimed entries, without those that were deleted.
local claimed = {}
for n = 8, #ARGV do
    local id = ARGV[n]
    -- XCLAIM alone would take an entry from any consumer.
    local pending = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1, ARGV[2])[1]
    if pending then
        local count = ARGV[5] ~= '' and ARGV[5] or pending[4] + 1
        local entry = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[3], ARGV[4], id, 'RETRYCOUNT', count)[1]
        -- Redis 6.2 returns null for a deleted entry.
        if entry then
            local size = 0
            for _, text in ipairs(entry[2]) do size = size + #text end
            local fields = #entry[2] / 2
            -- The size of the entry may have killed its first reader.
            if size > tonumber(ARGV[6]) or fields > 1000 then
                entry[2] = {ARGV[7], string.format('an entry of %.0f bytes in %.0f fields', size, fields)}
            end
            claimed[#claimed + 1] = entry
        end
    end
end
return claimed
