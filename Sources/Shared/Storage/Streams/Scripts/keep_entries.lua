-- Keeps a consumer's entries: marks them as delivered now, so that no other consumer claims them.
-- KEYS[1] stream   ARGV[1] group   ARGV[2] consumer   ARGV[3] 1 for an overflow
-- ARGV[4...] entry ids
-- Returns the consumer's pending entries, and those that Redis has lost, as after a restart. An
-- overflow without a group was removed when all its jobs were finished; none of them is returned.
local function numbers(id)
    local milliseconds, sequence = string.match(id, '^(%d+)-(%d+)$')
    return tonumber(milliseconds) or 0, tonumber(sequence) or 0
end
local function isAfter(id, other)
    local a, b = numbers(id)
    local c, d = numbers(other)
    return a > c or (a == c and b > d)
end
local groups = redis.pcall('XINFO', 'GROUPS', KEYS[1])
local delivered = '0-0'
local hasGroup = false
if not groups.err then
    for _, group in ipairs(groups) do
        local facts = {}
        for n = 1, #group, 2 do facts[group[n]] = group[n + 1] end
        if facts['name'] == ARGV[1] then
            hasGroup = true
            delivered = facts['last-delivered-id']
        end
    end
end
local kept = {}
if ARGV[3] == '1' and not hasGroup then return kept end
for n = 4, #ARGV do
    local id = ARGV[n]
    if hasGroup and #redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1, ARGV[2]) > 0 then
        redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, id, 'JUSTID')
        kept[#kept + 1] = id
    elseif isAfter(id, delivered) and #redis.call('XRANGE', KEYS[1], id, id) == 0 then
        kept[#kept + 1] = id
    end
end
return kept
