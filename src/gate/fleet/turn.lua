-- One key's turns (docs/fleet.md): which instance has the lease, without which nothing starts under a delay, and
-- what starts have to keep their distance from. Gaps are kept by the instances; this only remembers and lends.
--
-- KEYS[1]  politely:{KEY}:lease, JSON. Times are milliseconds by the server's clock, and never trusted beyond sense.
-- ARGV     1 take: lease it, or stand in line · keep: lease it on · give: give it, and the place in line, up
--          2 instance    3 number of the take    4 lease    5 gap that the instance keeps, 0: none
--          6, 7 how long ago its last start and last first fetch left, or ""    8 how long nothing may start
--          9 backoff    10 "1": that is the fleet's, brought on under the lease    11 how long what it tells matters
--          12 the longest that anything is owed    13 the host's latency    14 refusals in a row, both by the rule of 9
-- Answers  0 nothing · 1 no lease is needed · 2 in line · 3 leased; then how long ago the last start and first fetch of
--          other instances were, or -1; hold; backoff; instances that want the key; for how long it, or another, has it;
--          latency; refusals in a row
local HOUR = 3600000

local op, me, number = ARGV[1], ARGV[2], tonumber(ARGV[3])
local lease, gap, most = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[12])
local name = string.match(KEYS[1], '{(.*)}')
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local kept = redis.call('GET', KEYS[1])
local key = kept and cjson.decode(kept) or { number = 0, from = 0, by = '', fetch_by = '', line = '' }
key.asked = key.asked or {}
local latest = { ends = now + lease, last = now + 1, fetch = now + 1, hold = now + most, backoff = HOUR }
if math.max(key.last or 0, key.fetch or 0) > now + 1 then
    -- The clock was set back: whose start was the last one is not known any more.
    key.by, key.fetch_by = '', ''
end
for field, at in pairs(latest) do
    key[field] = math.min(key[field] or 0, at)
end

local function announce(whom)
    redis.call('PUBLISH', 'politely:' .. whom, 'pace ' .. me .. ' ' .. name)
end
local function leave_line(who)
    key.line, key.asked[who] = string.gsub(key.line, who .. ' ', ''), nil
end
-- Who stands in line asks every second, a third of a lease: after four times as long it is cut off, or dead.
local function is_silent(who, times)
    return now - (key.asked[who] or 0) > lease * times / 3
end
-- To the first in line, who is first again when it asks if it does not take it up in time: to connect anew and to ask takes
-- 1.5 s where each way takes 0.25. Who is silent is passed over, and keeps its place for 30 s.
local function pass_on()
    key.owner, key.number, key.ends = nil, 0, now + math.floor(lease * 2 / 3)
    for who in string.gmatch(key.line, '%x+') do
        if not is_silent(who, 4) then
            key.owner = who
            leave_line(who)
            announce('to:' .. who)
            return
        elseif is_silent(who, 30) then
            leave_line(who)
        end
    end
end
if op == 'take' and key.asked[me] then
    key.asked[me] = now
end
if key.owner and key.ends <= now then
    -- It is gone, or has not heard that the lease is its own. It may have started until then, unless it had to wait.
    if key.number > 0 and key.from < key.ends and key.ends > key.last then
        key.last, key.by = key.ends, ''
    end
    key.late = key.owner
    pass_on()
end

-- What is said of a lease that has been given up, or taken anew, comes too late.
local mine = key.owner == me and (op == 'take' and number >= key.number or number == key.number)
local news = false
if ARGV[6] ~= '' and now + 1 - ARGV[6] > key.last then
    key.last, key.by = now + 1 - ARGV[6], me
end
if ARGV[7] ~= '' and now + 1 - ARGV[7] > key.fetch then
    key.fetch, key.fetch_by = now + 1 - ARGV[7], me
end
if tonumber(ARGV[8]) > 0 and now + ARGV[8] > key.hold then
    key.hold, news = math.min(now + ARGV[8], now + most), true
end
local backoff = tonumber(ARGV[9])
if backoff > key.backoff or mine and ARGV[10] == '1' then
    key.backoff, news = backoff, news or backoff > key.backoff
end
for field, at in pairs({ latency = 13, refusals = 14 }) do
    local observed = tonumber(ARGV[at] or 0)
    if observed > (key[field] or 0) or mine and ARGV[10] == '1' then
        key[field] = observed
    end
end

local answer = 0
if op == 'give' then
    leave_line(me)
    key.late = key.late ~= me and key.late or nil
    if mine or key.owner == me and key.number == 0 then
        pass_on()
    end
elseif op == 'keep' or key.owner == me then
    answer = mine and 3 or 0
elseif gap == 0 and key.backoff == 0 and key.hold <= now then
    answer = 1
    leave_line(me)
elseif key.owner then
    answer, key.asked[me] = 2, now
    if key.late == me then
        key.line, key.late = me .. ' ' .. key.line, nil
    elseif not string.find(key.line, me, 1, true) then
        key.line = key.line .. me .. ' '
    end
else
    leave_line(me)
    key.owner, answer = me, 3
end
if answer == 3 then
    if key.number == 0 or key.number == number then
        key.ends = now + lease
    end
    -- Else the answer to another take was lost: who is never heard has it for no longer by asking again.
    key.number = number
    key.from = math.max(now, key.hold, key.last + math.max(gap, key.backoff))
end
if news then
    announce('all')
end

if answer ~= 1 or kept or ARGV[11] ~= '0' then
    -- For as long as it can matter, to who waits too: by the longest gap that is still owed, not by the newest.
    local held_for = key.owner and key.ends - now + math.max(gap, key.backoff) or 0
    local matters = math.max(tonumber(ARGV[11]), held_for + lease, math.min(redis.call('PTTL', KEYS[1]), most + HOUR))
    redis.call('SET', KEYS[1], cjson.encode(key), 'PX', matters)
end
local waiting = 0
for who in string.gmatch(key.line, '%x+') do
    waiting = waiting + (is_silent(who, 4) and 0 or 1)
end
local ago = function(at, whose)
    return at > 0 and whose ~= me and math.max(now - at, 0) or -1
end
return { answer, ago(key.last, key.by), ago(key.fetch, key.fetch_by), math.max(key.hold - now, 0), key.backoff,
    waiting + 1, key.ends - now, key.latency or 0, key.refusals or 0 }
