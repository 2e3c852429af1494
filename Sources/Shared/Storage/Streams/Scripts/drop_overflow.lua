-- Forgets an organisation's overflow if nothing is left in it, neither waiting nor being worked on.
-- KEYS[1] the organisations that have one   KEYS[2] the overflow   ARGV[1] organisation
-- Returns 1 if it was forgotten.
if redis.call('XLEN', KEYS[2]) > 0 then return 0 end
redis.call('SREM', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[2])
return 1
