-- Acquires or renews a lease.
-- KEYS[1] lease   ARGV[1] value   ARGV[2] time to live in ms
-- Returns 1 if the lease was held, 0 if it had lapsed.
local held = redis.call('EXISTS', KEYS[1])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return held
