-- Before an answer leaves: do the notes it shows still stand at the versions it shows? If so, log that they were shown.
-- witness.py is the Python half of this protocol.
--
-- KEYS  1 log  2 heads  3 access  4 use  5 cells  6 what was shown already (a hash, note id -> mark)
--       7 what a context was shown (a hash, note id -> when, and behind a | the telling that has corrected it since)
-- ARGV  1 a JSON object of strings, but for lists and 'used':
--         now          epoch ms
--         seen         the last id of the log that the answer was made from ('' any)
--         policy       the version of the policy it was made by ('' any)
--         notes        {id, version, the mark it was seen with in KEYS[6] ('' none)}
--         used         how many of the notes, from the first, count as used
--         mark         for KEYS[6] ('' keeps none), and mark_ms, its lifetime
--         corrections  {id, version ('' forgotten), what KEYS[7] was seen to hold of it}
--         telling      the name of this telling of corrections
--         context_ms   lifetime of KEYS[7] ('' keeps none)
--       2 the ledger entry ('' none)
-- Returns {last id of the log, 1 where a later policy is in force, {moved note ids}, {note id, mark} of each that was
-- shown meanwhile, {note id, what KEYS[7] holds} of each that was corrected or shown again meanwhile}. Ledger entry and
-- marks are written only when none of it has moved and the log has not grown past what the answer saw. Returns {} and
-- writes nothing where the workspace was dropped: it has no policy cell then.

local LOG, HEADS, ACCESS, USE, CELLS, SHOWN, CONTEXT = unpack(KEYS)
local call = redis.call
local ask, entry = cjson.decode(ARGV[1]), ARGV[2]

-- Half a megabyte for one context: more notes than any has room for, so it was compacted without anybody saying so.
local MOST = 10000

local policy = call('HGET', CELLS, 'policy')
if not policy then return {} end
local last = call('XREVRANGE', LOG, '+', '-', 'COUNT', 1)
last = #last == 0 and '0-0' or last[1][1]
-- A cell that is damaged, or behind, is for rebuild to mend, and must not stop every answer.
local version = tonumber(string.match(policy, '^(%d+)|') or '')
local later = ask.policy ~= '' and version and version > tonumber(ask.policy) and 1 or 0

local moved = {}
local function stand(note)
  local id, expected = note[1], note[2]
  local head, found = call('HGET', HEADS, id), ''
  if head then found = string.match(head, '^([^|]+)|') end
  if found ~= expected then moved[#moved + 1] = id end
end
local function compare(key, note, changed)
  local id, expected = note[1], note[3]
  local mark = call('HGET', key, id) or ''
  if mark ~= expected then
    changed[#changed + 1] = id
    changed[#changed + 1] = mark
  end
end

local shown, told = {}, {}
for _, note in ipairs(ask.corrections) do
  stand(note)
  compare(CONTEXT, note, told)
end
for _, note in ipairs(ask.notes) do
  stand(note)
  if ask.mark ~= '' then compare(SHOWN, note, shown) end
end

local stands = later == 0 and #moved == 0 and #shown == 0 and #told == 0
if stands and (ask.seen == '' or ask.seen == last) then
  if entry ~= '' then call('XADD', ACCESS, '*', 'e', entry) end
  for _, note in ipairs(ask.corrections) do
    call('HSET', CONTEXT, note[1], string.match(note[3], '^%d*') .. '|' .. ask.telling)
  end
  local kept = ask.context_ms ~= '' and ask.used > 0
  local room = kept and MOST - call('HLEN', CONTEXT) or 0
  for n = 1, ask.used do
    local id = ask.notes[n][1]
    call('HINCRBY', USE, id .. ':n', 1)
    call('HSET', USE, id .. ':t', ask.now)
    if room > 0 then room = room - call('HSET', CONTEXT, id, ask.now) end
  end
  if kept then call('PEXPIRE', CONTEXT, ask.context_ms) end
  if ask.mark ~= '' and #ask.notes > 0 then
    for _, note in ipairs(ask.notes) do call('HSET', SHOWN, note[1], ask.mark) end
    call('PEXPIRE', SHOWN, ask.mark_ms)
  end
end
return { last, later, moved, shown, told }
