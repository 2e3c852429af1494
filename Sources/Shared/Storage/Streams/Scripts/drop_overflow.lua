-- Removes an organisation's overflow if it has no entries, waiting or pending.
-- KEYS[1] organisations with an overflow   KEYS[2] overflow   ARGV[1] organisation
-- Returns 1 if the overflow was removed.
if redis.call('XLEN', KEYS[2]) > 0 then return 0 end
redis.call('SREM', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[2])
return 1
