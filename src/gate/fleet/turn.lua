-- One key's turns (SEMANTICS §5, fleet): which instance has the lease, without which nothing starts under a delay, and
-- what starts have to keep their distance from. Gaps are kept by the instances; this only remembers and lends.
--
-- KEYS[1]  politely:{KEY}:turn, a hash. Times are milliseconds by the server's clock, and never trusted beyond sense.
-- ARGV     1 take: lease it, or stand in line · keep: lease it on · give: give it, and the place in line, up
--          2 instance    3 number of the take    4 lease    5 gap that the instance keeps, 0: none
--          6, 7 how long ago its last start and last first fetch left, or ""    8 how long nothing may start
--          9 backoff    10 "1": that is the fleet's, brought on under the lease    11 how long what it tells matters
--          12 the longest that anything is owed
-- Answers  0 nothing · 1 no lease is needed · 2 in line · 3 leased; then how long ago the last start and first fetch of
--          other instances were, or -1; hold; backoff; instances that want the key; in line: when to ask again
local RESERVED = 1500
local HOUR = 3600000

local op, me, number = ARGV[1], ARGV[2], tonumber(ARGV[3])
local lease, gap, most = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[12])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local name = string.match(KEYS[1], '{(.*)}')

local kept, state = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #kept, 2 do
    state[kept[i]] = kept[i + 1]
end
local function instant(field, latest)
    return math.min(tonumber(state[field]) or 0, latest)
end
local owner, held, ends = state.owner, tonumber(state.number), instant('ends', now + lease)
local last, fetch, hold = instant('last', now + 1), instant('fetch', now + 1), instant('hold', now + most)
local backoff, by, fetch_by = math.min(tonumber(state.backoff) or 0, HOUR), state.by, state.fetch_by
local reserved, line = instant('reserved', now + RESERVED), state.line or ''

local function leave_line()
    line = string.gsub(line, ' %-?' .. me, '')
end
-- Who has let a turn go by is passed over until it asks again.
local function first()
    return string.match(line, ' (%x+)')
end
local function pass_on()
    owner = nil
    if first() then
        reserved = now + RESERVED
        redis.call('PUBLISH', 'politely:to:' .. first(), 'free ' .. name)
    end
end
if owner and ends <= now then
    -- It is gone. It may have started until then, unless it had to wait for longer.
    if (tonumber(state.from) or 0) < ends and ends > last then
        last, by = ends, ''
    end
    pass_on()
end
-- What is said of a lease that has been given up, or taken anew, comes too late.
local mine = owner == me and (op == 'take' and number >= held or number == held)
local news = false
if ARGV[6] ~= '' and now + 1 - ARGV[6] > last then
    last, by = now + 1 - ARGV[6], me
end
if ARGV[7] ~= '' and now + 1 - ARGV[7] > fetch then
    fetch, fetch_by = now + 1 - ARGV[7], me
end
if tonumber(ARGV[8]) > 0 and now + ARGV[8] > hold then
    hold, news = math.min(now + ARGV[8], now + most), true
end
if mine and ARGV[10] == '1' then
    news = news or tonumber(ARGV[9]) > backoff
    backoff = tonumber(ARGV[9])
elseif tonumber(ARGV[9]) > backoff then
    backoff, news = tonumber(ARGV[9]), true
end

local answer = 0
if op == 'give' then
    local was_next = first() == me
    leave_line()
    if mine or not owner and was_next then
        pass_on()
    end
elseif op == 'keep' then
    answer = mine and 3 or 0
elseif owner == me then
    answer = mine and 3 or 0
elseif gap == 0 and backoff == 0 and hold <= now then
    answer = 1
    leave_line()
else
    if not string.find(line, me, 1, true) then
        line = line .. ' ' .. me
    end
    local is_late
    line, is_late = string.gsub(line, ' %-' .. me, ' ' .. me)
    if not owner and reserved <= now and first() ~= me then
        line = string.gsub(string.gsub(line, ' %-%x+', ''), ' (%x+)', ' -%1', 1)
        pass_on()
    end
    if owner or first() ~= me then
        answer = 2
        if owner then
            redis.call('PUBLISH', 'politely:to:' .. owner, (is_late > 0 and 'due ' or 'wanted ') .. name)
        end
    else
        leave_line()
        owner, answer = me, 3
    end
end
if answer == 3 then
    held, ends = number, now + lease
    state.from = math.max(now, hold, last + math.max(gap, backoff))
end
if news then
    redis.call('PUBLISH', 'politely:all', 'pace ' .. me .. ' ' .. name)
end

if answer ~= 1 or #kept > 0 or ARGV[11] ~= '0' then
    redis.call('HSET', KEYS[1], 'last', last, 'by', by or '', 'fetch', fetch, 'fetch_by', fetch_by or '', 'hold', hold,
        'backoff', backoff, 'reserved', reserved, 'line', line)
    if owner then
        redis.call('HSET', KEYS[1], 'owner', owner, 'number', held, 'ends', ends, 'from', state.from)
    else
        redis.call('HDEL', KEYS[1], 'owner')
    end
    -- For as long as it can matter, to who waits too: by the longest gap that is still owed, not by the newest.
    local held_for = owner and ends - now + math.max(gap, backoff) or 0
    local matters = math.max(tonumber(ARGV[11]), held_for + lease)
    redis.call('PEXPIRE', KEYS[1], math.max(matters, math.min(redis.call('PTTL', KEYS[1]), most + HOUR)))
end
local _, waiting = string.gsub(line, ' %x', '')
local ago = function(at, whose)
    return at > 0 and whose ~= me and math.max(now - at, 0) or -1
end
return { answer, ago(last, by), ago(fetch, fetch_by), math.max(hold - now, 0), backoff,
    math.max(waiting + (owner and 1 or 0), 1), (owner and ends or reserved) - now }
