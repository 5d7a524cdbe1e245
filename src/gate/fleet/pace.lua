-- The pace of one key for all instances: the arithmetic of policy::pace, run by the server (SEMANTICS §5, fleet).
-- One call tells what has happened on an instance, says whether it wants a turn, and answers how it stands. A turn is
-- held by one instance at a time: until the request has left, or until it has finished where it must be alone.
--
-- KEYS[1]  politely:{KEY}:pace, a hash. Times are microseconds by the server's clock.
-- ARGV     1 now: empty, but for tests     2 the instance            3 for how long turns and places are kept for it
--          4 wants: "", request, fetch     5 gap                     6 the most of a backoff
--          7 how long nothing may start    8 backoff: both as the instance knows them
--          9 1: it has a request in flight in the turn
--          then five for each event: 1 gives the turn up · request or fetch · how long ago it left, or "" · outcome
--          (success, failure, backoff, or "") · Retry-After, or ""
-- Answers  state · wait for the turn · hold · backoff · instances that want the key
--          state: 0 nothing asked for, 1 no turn needed, 2 in the line, 3 has the turn

local SECOND = 1000000
local MOST_BACKOFF = 3600 * SECOND
local FIRST_BACKOFF = SECOND
local LEAST_BACKOFF = SECOND / 10

local key, me, lease, wants = KEYS[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local gap, most = tonumber(ARGV[5]), tonumber(ARGV[6])
local now = tonumber(ARGV[1])
if not now then
    local time = redis.call('TIME')
    now = time[1] * SECOND + time[2]
end
local name = string.match(key, '{(.*)}')

local state = {}
local kept = redis.call('HGETALL', key)
for i = 1, #kept, 2 do
    state[kept[i]] = kept[i + 1]
end
local function number(field)
    return tonumber(state[field]) or 0
end
-- The last start, the last first fetch; nothing before `hold`; the gap of the last start.
local last, fetch, hold, delay = number('last'), number('fetch'), number('hold'), number('delay')
-- `raised`: when the backoff was last raised. What started before says nothing about it.
local backoff, raised = number('backoff'), number('raised')
-- Who has the turn, from when it may start, and until when it is kept.
local holder, starts_at, kept_until = state.holder, number('starts_at'), number('kept_until')
local line = {}
for id, expires, its_gap, its_kind in string.gmatch(state.line or '', '(%S+) (%S+) (%S+) (%S+)') do
    expires = tonumber(expires)
    if expires > now then
        line[#line + 1] = { id = id, expires = expires, gap = tonumber(its_gap), kind = its_kind }
    end
end

-- Its holder is gone: it may have started until then.
if holder and kept_until <= now then
    if starts_at < kept_until then
        last = math.max(last, kept_until)
    end
    holder = nil
end

local pushed_back = false
local function hold_until(time)
    if time > hold then
        hold = time
        pushed_back = true
    end
end

-- What the instance knows, which the server may have lost.
if tonumber(ARGV[7]) > 0 then
    hold_until(now + tonumber(ARGV[7]))
end
if tonumber(ARGV[8]) > backoff then
    backoff = math.min(tonumber(ARGV[8]), MOST_BACKOFF)
    pushed_back = true
end
if ARGV[9] == '1' and not holder then
    holder, starts_at, kept_until = me, now, now + lease
end

local function refused(start, advice)
    local this_round = start > raised
    if advice == 0 then
        advice = nil
    end
    if advice then
        advice = math.min(advice, MOST_BACKOFF)
        backoff = this_round and advice or math.max(advice, backoff)
    elseif not this_round then
        return
    elseif backoff == 0 then
        backoff = math.max(delay, FIRST_BACKOFF)
    else
        backoff = backoff * 2
    end
    backoff = math.min(backoff, most, MOST_BACKOFF)
    raised = now
    pushed_back = true
    hold_until(now + (advice or backoff))
end

local function succeeded(start)
    if backoff > 0 and start > raised then
        backoff = backoff / 2
        if backoff < LEAST_BACKOFF then
            backoff = 0
        end
    end
end

for i = 10, #ARGV, 5 do
    local start = ARGV[i + 2] ~= '' and now - tonumber(ARGV[i + 2])
    if start then
        if ARGV[i + 1] == 'fetch' then
            fetch = math.max(fetch, start)
        else
            last = math.max(last, start)
        end
        if ARGV[i + 3] == 'success' then
            succeeded(start)
        elseif ARGV[i + 3] == 'backoff' then
            refused(start, tonumber(ARGV[i + 4]))
        end
    end
    if ARGV[i] == '1' and holder == me then
        holder = nil
    end
end

-- Its place in the line is kept, taken or given up.
local place
for i, waiter in ipairs(line) do
    if waiter.id == me then
        place = i
    end
end
if wants == '' or holder == me then
    if place then
        table.remove(line, place)
    end
elseif place then
    line[place].expires, line[place].gap, line[place].kind = now + lease, gap, wants
else
    line[#line + 1] = { id = me, expires = now + lease, gap = gap, kind = wants }
end
if holder == me then
    kept_until = now + lease
end

local function due(waiter)
    local gap = math.max(waiter.gap, math.min(backoff, most))
    if gap == 0 then
        return math.max(hold, now)
    end
    local mark = last
    if waiter.kind == 'fetch' then
        mark = math.max(last, fetch)
    end
    if mark == 0 then
        return math.max(hold, now)
    end
    return math.max(mark + gap, hold, now)
end

local function answer(state, wait)
    local rivals = #line + (holder and 1 or 0)
    local held = math.max(hold - now, 0)
    return { state, math.ceil(wait), math.ceil(held), math.floor(math.min(backoff, most)), math.max(rivals, 1) }
end

-- The next in the line gets the turn. Whoever keeps no gap needs none while nothing else is in force.
local granted = {}
while not holder and #line > 0 do
    local next = table.remove(line, 1)
    if next.gap == 0 and backoff == 0 and hold <= now then
        granted[next.id] = 1
    else
        holder, starts_at, kept_until, delay = next.id, due(next), now + lease, next.gap
        granted[next.id] = 3
    end
end
for id, state in pairs(granted) do
    if id ~= me then
        local answer = answer(state, state == 3 and starts_at - now or 0)
        redis.call('PUBLISH', 'politely:to:' .. id, 'turn ' .. table.concat(answer, ' ') .. ' ' .. name)
    end
end
if pushed_back then
    redis.call('PUBLISH', 'politely:all', 'pace ' .. me .. ' ' .. name)
end

local reply
if holder == me then
    reply = answer(3, math.max(starts_at - now, 0))
elseif granted[me] then
    reply = answer(1, 0)
else
    local ahead = 0
    for i, waiter in ipairs(line) do
        if waiter.id == me then
            ahead = i
        end
    end
    if ahead > 0 then
        local waiter = line[ahead]
        local each = math.max(waiter.gap, math.min(backoff, most))
        reply = answer(2, math.max(due(waiter), starts_at + each) + each * (ahead - 1) - now)
    else
        reply = answer(0, 0)
    end
end

-- Kept for as long as it can matter; a backoff for an hour after what is owed.
local owed = math.max(hold, last == 0 and 0 or last + math.max(delay, backoff), fetch == 0 and 0 or fetch + delay)
if backoff > 0 then
    owed = math.max(owed, now) + MOST_BACKOFF
end
if holder then
    owed = math.max(owed, kept_until, starts_at + delay)
end
local places = {}
for i, waiter in ipairs(line) do
    owed = math.max(owed, waiter.expires)
    places[i] = string.format('%s %.0f %.0f %s', waiter.id, waiter.expires, waiter.gap, waiter.kind)
end
if owed <= now then
    if #kept > 0 then
        redis.call('DEL', key)
    end
    return reply
end
local function text(value)
    return string.format('%.0f', value)
end
redis.call('HSET', key, 'last', text(last), 'fetch', text(fetch), 'hold', text(hold), 'delay', text(delay),
    'backoff', text(backoff), 'raised', text(raised), 'starts_at', text(starts_at), 'kept_until', text(kept_until),
    'line', table.concat(places, ' '))
if holder then
    redis.call('HSET', key, 'holder', holder)
else
    redis.call('HDEL', key, 'holder')
end
redis.call('PEXPIRE', key, math.ceil((owed - now) / 1000) + 1000)
return reply
