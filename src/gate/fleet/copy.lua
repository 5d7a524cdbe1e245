-- One authority's robots.txt for all instances, and the right to fetch it (docs/fleet.md).
-- KEYS[1]  politely:{AUTHORITY}:copy, MessagePack: when it was made, until when it is fresh, and the copy
--          KEYS[2] politely:{AUTHORITY}:fetch, the holder of the right, with a "+" if another instance is to be told of its copy
-- ARGV     1 the instance, ":" and the number of its right    2 the command:
--          look  the copy if it is fresh or younger than ARGV[4] milliseconds, else the right to fetch it for ARGV[5] milliseconds
--          anew  the copy if it is younger than ARGV[4] milliseconds, else the right to fetch it, as for look
--          take  the copy, whatever its age. All three ignore a copy of more than ARGV[3] bytes
--          keep  lets the right last for ARGV[3] milliseconds from now
--          give  gives the right back without a copy
--          put   stores the copy ARGV[4], made at the server's time ARGV[6] (as the command may arrive late), fresh for ARGV[3]
--                milliseconds, deleted after ARGV[5]. ARGV[7] is when the site was asked: if this instance does not have the
--                right, a copy made since then is newer, and stays. ARGV[8] is 1 if instances may have a copy with another content
-- Answers  0 copy, 1 fetch it, 2 another instance fetches, 3 done, 4 there is a newer copy · milliseconds: the copy's age · how long to
--          wait for the other instance · the server's time · the copy, or with 1 and 2 the one before, or ""
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local me, wanted = ARGV[1], ARGV[2]
local holder, awaited = string.match(redis.call('GET', KEYS[2]) or '', '^([^+]*)(+?)')
local mine = holder == me

-- Asks that the holder's copy be announced. Shortens the right if the clock was set back. Returns how long the right lasts, in milliseconds.
local function await_copy(longest)
    local left = math.max(math.min(redis.call('PTTL', KEYS[2]), tonumber(longest)), 1)
    redis.call('SET', KEYS[2], holder .. '+', 'PX', left)
    return left
end

-- Tells all instances: "robots", there is another copy; "free", the right was given back without one.
local function announce(what)
    local sender = string.match(me, '^[^:]*')
    redis.call('PUBLISH', 'politely:all', what .. ' ' .. sender .. ' ' .. string.match(KEYS[1], '{(.*)}'))
end

if wanted == 'keep' or wanted == 'give' then
    if mine and wanted == 'keep' then
        redis.call('PEXPIRE', KEYS[2], ARGV[3])
    elseif mine then
        redis.call('DEL', KEYS[2])
        if awaited == '+' then
            announce('free')
        end
    end
    return { 3, 0, 0, now, '' }
end
-- A value that another program has written counts as no copy.
local at, fresh_until, copy = 0, 0, ''
local is_ours, made, lasts, packed = pcall(cmsgpack.unpack, redis.pcall('GET', KEYS[1]))
if is_ours and type(made) == 'number' and type(lasts) == 'number' and type(packed) == 'string' then
    at, fresh_until, copy = made, lasts, packed
end
if wanted == 'put' then
    local is_latest = mine or at <= tonumber(ARGV[7]) or at > now
    if is_latest then
        at = math.min(now, tonumber(ARGV[6]))
        redis.call('SET', KEYS[1], cmsgpack.pack(at, at + ARGV[3], ARGV[4]), 'PX', ARGV[5])
        -- Without the right, another instance may have begun to fetch the file, or have an older copy.
        if ARGV[8] == '1' or awaited == '+' or not mine then
            announce('robots')
        end
    end
    if mine then
        redis.call('DEL', KEYS[2])
    elseif holder ~= '' then
        -- That instance may have asked the site later than this one.
        await_copy(math.huge)
    end
    return { is_latest and 3 or 4, 0, 0, now, '' }
end

if at > now + 1000 or #copy > tonumber(ARGV[3]) then
    -- The clock was set back, so the copy's age is unknown; or the copy is longer than this instance reads, as another instance has a
    -- higher `robots.max_size`.
    at, fresh_until, copy = 0, 0, ''
end
at = math.min(at, now)
local will_do = wanted == 'take' or at > now - ARGV[4] or wanted == 'look' and fresh_until > now
if copy ~= '' and will_do then
    return { 0, now - at, 0, now, copy }
end
if wanted == 'take' then
    return { 3, 0, 0, now, '' }
end
-- A repeated call may find its own right.
if mine and redis.call('PEXPIRE', KEYS[2], ARGV[5]) or redis.call('SET', KEYS[2], me, 'NX', 'PX', ARGV[5]) then
    return { 1, now - at, 0, now, copy }
end
return { 2, now - at, await_copy(ARGV[5]), now, copy }
