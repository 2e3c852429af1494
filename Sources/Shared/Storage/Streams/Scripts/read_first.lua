-- Reads a stream's first entry, which may be large, with only some of its fields.
-- KEYS[1] stream   ARGV[1...] names of the fields
-- Returns the entry in a list, or an empty list. It has the last of several fields with the same
-- name, and no field over 4 KB.
local entries = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)
for _, entry in ipairs(entries) do
    local fields, kept = entry[2], {}
    for _, name in ipairs(ARGV) do
        for n = #fields - 1, 1, -2 do
            if fields[n] == name then
                if #fields[n + 1] <= 4096 then
                    kept[#kept + 1] = name
                    kept[#kept + 1] = fields[n + 1]
                end
                break
            end
        end
    end
    entry[2] = kept
end
return entries
