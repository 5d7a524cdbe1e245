-- Notes that an instance is there, and answers how many are, and 1 if this one was noted before.
-- KEYS[1] politely:instances   ARGV: the instance, milliseconds until it counts as gone
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local was_there = redis.call('ZSCORE', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[2]), ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
-- Those from before the clock was set back.
redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('(%.0f', now + ARGV[2]), '+inf')
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
return { redis.call('ZCARD', KEYS[1]), was_there and 1 or 0 }
