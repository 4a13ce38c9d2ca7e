-- Before an answer leaves: do the notes it shows still stand at the versions it shows? If so, log that they were shown.
--
-- KEYS  1 log  2 heads  3 access  4 use  5 leases  6 cells  7 what was shown already (a hash, note id -> mark)
--       8 what a context was shown (a hash, note id -> when, and behind a | the telling that has corrected it since)
-- ARGV  now, ledger entry ('' none), owner that gave a sign of life ('' none), how many of the notes count as used,
--       the last id of the log that the answer was made from ('' any), the version of the policy it was made by
--       ('' any), mark for KEYS[7] ('' keeps none), lifetime of KEYS[7] in ms, lifetime of KEYS[8] in ms ('' keeps none),
--       the name of this telling, how many corrections it makes; for each correction the id of the note, its version
--       ('' forgotten) and what KEYS[8] was seen to hold of it; then for each note its id, its version and the mark it
--       was seen with in KEYS[7] ('' none)
-- Returns {last id of the log, 1 where a later policy is in force, {moved note ids}, {note id, mark} of each that was
-- shown meanwhile, {note id, what KEYS[8] holds} of each that was corrected or shown again meanwhile}. Ledger entry and
-- marks are written only when none of it has moved and the log has not grown past what the answer saw. Returns {} and
-- writes nothing where the workspace was dropped: it has no policy cell then.

-- Half a megabyte for one context: more notes than any has room for, so it was compacted without anybody saying so.
local MOST = 10000

local policy = redis.call('HGET', KEYS[6], 'policy')
if not policy then return {} end
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
last = #last == 0 and '0-0' or last[1][1]
-- A cell that is damaged, or behind, is for rebuild to mend, and must not stop every answer.
local version = tonumber(string.match(policy, '^(%d+)|') or '')
local later = ARGV[6] ~= '' and version and version > tonumber(ARGV[6]) and 1 or 0

local moved, shown, told = {}, {}, {}
local notes = 12 + 3 * tonumber(ARGV[11])
local used = notes + 3 * tonumber(ARGV[4])
for i = 12, #ARGV, 3 do
  local head = redis.call('HGET', KEYS[2], ARGV[i])
  if ARGV[i + 1] == '' then
    if head then moved[#moved + 1] = ARGV[i] end
  elseif not head or string.match(head, '^([^|]*)|') ~= ARGV[i + 1] then
    moved[#moved + 1] = ARGV[i]
  end
  if i < notes then
    local mark = redis.call('HGET', KEYS[8], ARGV[i]) or ''
    if mark ~= ARGV[i + 2] then
      told[#told + 1] = ARGV[i]
      told[#told + 1] = mark
    end
  elseif ARGV[7] ~= '' then
    local mark = redis.call('HGET', KEYS[7], ARGV[i]) or ''
    if mark ~= ARGV[i + 2] then
      shown[#shown + 1] = ARGV[i]
      shown[#shown + 1] = mark
    end
  end
end
local stands = later == 0 and #moved == 0 and #shown == 0 and #told == 0
if stands and (ARGV[5] == '' or ARGV[5] == last) then
  if ARGV[2] ~= '' then redis.call('XADD', KEYS[3], '*', 'e', ARGV[2]) end
  for i = 12, notes - 1, 3 do
    redis.call('HSET', KEYS[8], ARGV[i], string.match(ARGV[i + 2], '^%d*') .. '|' .. ARGV[10])
  end
  local room = ARGV[9] ~= '' and notes < used and MOST - redis.call('HLEN', KEYS[8]) or 0
  for i = notes, used - 1, 3 do
    redis.call('HINCRBY', KEYS[4], ARGV[i] .. ':n', 1)
    redis.call('HSET', KEYS[4], ARGV[i] .. ':t', ARGV[1])
    if room > 0 then room = room - redis.call('HSET', KEYS[8], ARGV[i], ARGV[1]) end
  end
  if ARGV[7] ~= '' and notes < #ARGV then
    for i = notes, #ARGV, 3 do redis.call('HSET', KEYS[7], ARGV[i], ARGV[7]) end
    redis.call('PEXPIRE', KEYS[7], ARGV[8])
  end
  if ARGV[9] ~= '' and notes < used then redis.call('PEXPIRE', KEYS[8], ARGV[9]) end
end
if ARGV[3] ~= '' then redis.call('ZADD', KEYS[5], ARGV[1], ARGV[3]) end
return { last, later, moved, shown, told }
