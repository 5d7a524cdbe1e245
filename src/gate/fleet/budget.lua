-- Spends from one budget in its current period, by the server's clock.
--
-- KEYS[1]  politely:{KEY}:budget:PERIOD, a hash of `ends`, `requests`, `bytes`; it expires with its period
-- ARGV     1 length of the period, in seconds    2 requests to add; if negative, only in the period that ends at ARGV[8]    3 bytes to add
--          4, 5 upper limits of requests and bytes, or "": no limit
--          6, 7 requests and bytes that the instance knows to be spent in the period that ends at ARGV[8]: this server may have lost them
-- Answers  1 if there was room; then requests and bytes, and the remaining milliseconds of the period

local time = redis.call('TIME')
local length = tonumber(ARGV[1])
local ends = (math.floor(time[1] / length) + 1) * length
local kept = redis.call('HMGET', KEYS[1], 'ends', 'requests', 'bytes')
local requests, bytes = 0, 0
local kept_ends = tonumber(kept[1] or 0)
if kept_ends >= ends then
    -- If the server's clock was set back, the stored period is a later one: it continues, but ends with the next period at the latest.
    ends = math.min(kept_ends, ends + length)
    redis.call('HSET', KEYS[1], 'ends', ends)
    redis.call('EXPIREAT', KEYS[1], ends)
    requests, bytes = tonumber(kept[2]), tonumber(kept[3])
end
if tonumber(ARGV[8]) == ends then
    requests, bytes = math.max(requests, tonumber(ARGV[6])), math.max(bytes, tonumber(ARGV[7]))
end
local function has_room(spent, most)
    return most == '' or spent < tonumber(most)
end

local goes = has_room(requests, ARGV[4]) and has_room(bytes, ARGV[5])
if goes then
    local more = tonumber(ARGV[2])
    if more < 0 and tonumber(ARGV[8]) ~= ends then
        more = 0
    end
    requests, bytes = math.max(requests + more, 0), bytes + ARGV[3]
    redis.call('HSET', KEYS[1], 'ends', ends, 'requests', requests, 'bytes', bytes)
    redis.call('EXPIREAT', KEYS[1], ends)
end
return { goes and 1 or 0, requests, bytes, ends * 1000 - (time[1] * 1000 + math.floor(time[2] / 1000)) }
