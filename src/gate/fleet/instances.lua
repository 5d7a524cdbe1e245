-- Registers an instance, or removes one that ends, and answers with the state of the fleet.
-- Debts are times before which the instance may start nothing at its hosts (docs/fleet.md).
-- KEYS[1]  politely:instances: when each instance was last heard of, in milliseconds; half a millisecond less if it still reports its debts
-- ARGV     1 the instance's name    2 milliseconds of silence until an instance is missing    3 until it is forgotten
--          4 "starts"; "ends"; "tells": it still reports its debts; "": it has reported them, but if this server does not know it,
--          the server may have lost them, so the instance reports them again
-- Answers  connected instances; all, including missing ones; how many of all have a smaller name; 1 if this instance was
--          registered before; how many others still report their debts; the time in microseconds
local key, me = KEYS[1], ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local was_there = redis.call('ZSCORE', key, me)
if ARGV[4] == 'ends' then
    redis.call('ZREM', key, me)
else
    local tells = ARGV[4] == 'tells' or ARGV[4] == '' and not was_there
    redis.call('ZADD', key, now - (tells and 0.5 or 0), me)
end
redis.call('ZREMRANGEBYSCORE', key, '-inf', now - ARGV[3])
redis.call('PEXPIRE', key, ARGV[3])
local connected, all, rank, telling = 0, 0, 0, 0
local heard = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
for i = 1, #heard, 2 do
    local name, tells = heard[i], heard[i + 1] % 1
    local silent = now - heard[i + 1]
    if silent < 0 then
        -- The clock was set back.
        redis.call('ZADD', key, now - tells, name)
    end
    if silent <= tonumber(ARGV[2]) then
        connected = connected + 1
        telling = telling + (tells > 0 and name ~= me and 1 or 0)
    end
    all = all + 1
    rank = rank + (name < me and 1 or 0)
end
return { connected, all, rank, was_there and 1 or 0, telling, time[1] * 1000000 + time[2] }
