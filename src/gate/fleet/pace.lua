-- One key's starts (docs/fleet.md): reserves the next, and keeps the observed state of the origin.
-- KEYS[1]  politely:{KEY}:pace, MessagePack. Times are microseconds by the server's clock; `last` and `fetch` are the latest
--          times at which the last request, and the last first fetch of a robots.txt, may be sent.
-- ARGV     1 instance    2 number of the reservation, 0: none    3 its gap    4 how long the answer takes to arrive
--          5 length of its window    6 1: first fetch of a robots.txt
--          7 end of an unused reservation    8 the end of the reservation before it
--          9 end of a reservation whose request is sent later    10 when it is sent
--          11, 12 the instance's last start and first fetch, if the server may not know them    13 for how long nothing may start
--          14 for how long a request is still in flight, 0: ended, -1: no news    15, 16 backoff as last heard, and now
--          17, 18 latency    19, 20 consecutive refusals    21 upper limit of a debt    22 round trip of this instance
-- Answers  time; the start, 0: not needed; the end of the reservation before; total postponement; until when a request is in
--          flight; until when nothing may start; backoff; latency; refusals; the longest round trip of an instance
local HOUR, SECOND = 3600000000, 1000000
local me, arg = ARGV[1], {}
for i = 2, 22 do
    arg[i] = tonumber(ARGV[i])
end
local time = redis.call('TIME')
local now = time[1] * SECOND + time[2]
local kept = redis.call('GET', KEYS[1])
local key = kept and cmsgpack.unpack(kept) or { at = now, last = 0, fetch = 0, hold = 0, busy = 0, owed = 0, off = 0, way = 0,
    backoff = 0, latency = 0, refusals = 0, by = '', number = 0, stop = 0, before = 0 }
local function tell(what)
    redis.call('PUBLISH', 'politely:all', what .. string.match(KEYS[1], '{(.*)}'))
end

if key.at > now then
    -- The clock was set back: continues as if no time had passed.
    for _, field in ipairs({ 'last', 'fetch', 'hold', 'busy', 'owed' }) do
        key[field] = math.max(key[field] - key.at + now, 0)
    end
end
for _, field in ipairs({ 'last', 'fetch' }) do
    if arg[7] > 0 and key[field] == arg[7] then
        key[field] = arg[8]
    end
end
local off, busy, way, is_raised = key.off, key.busy, key.way, false
local later = math.min(arg[10] - arg[9], arg[21])
if later > 0 and key.fetch == arg[9] then
    key.fetch = key.fetch + later
elseif later > 0 then
    -- Later reservations of other instances are postponed as well.
    key.off = key.last > arg[9] and off + later or off
    key.last = math.max(key.last, arg[9]) + later
end
key.last, key.fetch = math.max(key.last, math.min(arg[11], now)), math.max(key.fetch, math.min(arg[12], now))
if now + arg[13] > math.max(key.hold, now) then
    key.hold, is_raised = now + math.min(arg[13], arg[21]), true
end
for field, i in pairs({ backoff = 15, latency = 17, refusals = 19 }) do
    local was, is = arg[i], arg[i + 1]
    if (is > was or not kept) and is > key[field] or is < was and key[field] == was then
        is_raised = is_raised or field ~= 'latency' and is > key[field]
        key[field] = is
    end
end
if arg[14] >= 0 then
    key.busy = arg[14] > 0 and now + math.min(arg[14], arg[21]) or 0
end
key.way = math.max(math.floor(way * 63 / 64), arg[22])

local gap, start = math.max(arg[3], key.backoff), 0
if arg[2] > 0 and (gap > 0 or key.hold > now) then
    local field = arg[6] == 1 and 'fetch' or 'last'
    if key.by == me and key.number == arg[2] and key[field] == key.stop then
        -- The instance repeats a reservation whose answer was lost.
        key[field] = key.before
    end
    local last = math.max(key.last, key[field])
    start = math.max(now + arg[4], key.hold, key.busy, last > 0 and last + gap or 0)
    key.by, key.number, key.stop, key.before = me, arg[2], start + arg[5], key[field]
    key[field] = key.stop
end
if kept or start > 0 or is_raised or key.last > 0 or key.busy > 0 then
    key.at, key.owed = now, math.max(key.owed, key.last + gap, key.fetch + gap, key.hold, key.busy)
    local remembers = key.backoff + key.latency + key.refusals > 0 and HOUR or 10 * SECOND
    redis.call('SET', KEYS[1], cmsgpack.pack(key), 'PX', math.ceil((math.max(key.owed - now, 0) + remembers) / 1000))
end
if is_raised then
    tell('pace ' .. me .. ' ')
end
if key.off ~= off or key.busy ~= busy or key.way > way + SECOND / 100 then
    tell(string.format('wait %s %.0f %.0f %.0f ', me, key.off, key.busy, key.way))
end
return { now, start, key.before, key.off, key.busy, key.hold, key.backoff, key.latency, key.refusals, key.way }
