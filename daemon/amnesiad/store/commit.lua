-- The one write primitive. Compares and sets; knows no domain rule. log.py is the Python half of this protocol.
--
-- KEYS  1 log  2 heads  3 vault  4 tomb  5 cells  6 due  7 totals  8 use  9 vectors, then whatever keys the units name
--       by number
-- ARGV  one unit each, a JSON object of op and lists of strings (key numbers and deltas are numbers):
--         notes    {id, source (h head | t tomb | - none), expected version, target (h | t), version, value, {events}}
--         cells    {field, expected stamp, new stamp ('' deletes, '=' only compares), payload}
--         totals   {field, delta, limit (-1 none)}
--         words    {id, value ('' deletes)}
--         due      {id, score ('' removes)}
--         sets     {key number, command, member or field, value}
--         events   workspace events
--         request  {} or {key number, body hash, answer, lifetime in ms}
-- A unit is all or nothing; units are independent. Heads, tombs and cells hold 'stamp|op|seq|…': where anything a unit
-- would change carries the unit's own op, the whole of it was written before and only the reply was lost.
-- Returns for each unit {status, seq, previous last id, detail, current}: ok | own | conflict | full | replay | reused.

-- No workspace has so many bytes, and a double counts no further: a total like this is for rebuild to mend.
local DAMAGED = 2 ^ 53

local LOG, HEADS, VAULT, TOMB, CELLS, DUE, TOTALS, USE, VECTORS = unpack(KEYS, 1, 9)
local call = redis.call

local last = call('XREVRANGE', LOG, '+', '-', 'COUNT', 1)
last = #last == 0 and '0-0' or last[1][1]

-- A dropped workspace has no policy cell. Nothing may be written to it, or keys would remain that nobody owns.
local dropped = call('HEXISTS', CELLS, 'policy') == 0

local function parse(held)
  if not held then return '', '', '' end
  local stamp, op, seq = string.match(held, '^([^|]*)|([^|]*)|([^|]*)|')
  -- What does not parse equals no stamp, so that a damaged value conflicts and stops nobody else's unit.
  return stamp or false, op or '', seq or ''
end

local function place_of(note)
  local head = call('HGET', HEADS, note[1])
  if head then return 'h', head end
  local tomb = call('HGET', TOMB, note[1])
  if tomb then return 't', tomb end
  return '-', nil
end

local function ours(unit)
  local found = nil
  local function look(held)
    local _, op, seq = parse(held)
    if op == unit.op then found = seq end
  end
  for _, note in ipairs(unit.notes) do
    local _, held = place_of(note)
    look(held)
  end
  for _, cell in ipairs(unit.cells) do look(call('HGET', CELLS, cell[1])) end
  return found
end

local function conflict(unit, detail, held)
  local seq = ours(unit)
  if seq then return { 'own', seq, last, '', '' } end
  return { 'conflict', '', last, detail, held or '' }
end

local function check(unit)
  if dropped then return { 'conflict', '', last, 'policy', '' } end
  local request = unit.request
  if request[1] then
    local prior = call('GET', KEYS[request[1]])
    if prior then
      -- What is damaged was kept for some body, and nobody can tell for which.
      local bar = string.find(prior, '|', 1, true) or 0
      if string.sub(prior, 1, bar - 1) ~= request[2] then return { 'reused', '', last, '', '' } end
      return { 'replay', '', last, '', string.sub(prior, bar + 1) }
    end
  end
  for _, note in ipairs(unit.notes) do
    local place, held = place_of(note)
    local stamp, _, seq = parse(held)
    if place ~= note[2] or stamp ~= note[3] then return conflict(unit, 'note:' .. note[1], held) end
    note.previous = seq
  end
  for _, cell in ipairs(unit.cells) do
    local held = call('HGET', CELLS, cell[1])
    if parse(held) ~= cell[2] then return conflict(unit, cell[1], held) end
  end
  for _, total in ipairs(unit.totals) do
    local delta, limit = total[2], total[3]
    if limit >= 0 and delta > 0 then
      local value = tonumber(call('HGET', TOTALS, total[1])) or 0
      if value >= DAMAGED then value = 0 end
      if value + delta > limit then return { 'full', '', last, total[1], string.format('%.0f', value) } end
    end
  end
  return nil
end

local function append(event, previous)
  last = call('XADD', LOG, '*', 'e', event, 'p', previous)
  return last
end

-- One command for many members costs a fraction of one for each; the stack holds a few thousand of them at a time.
local SLICE = 1000
local function many(command, key, members)
  for i = 1, #members, SLICE do call(command, key, unpack(members, i, math.min(i + SLICE - 1, #members))) end
end

local function apply(unit)
  local op, before = unit.op, last
  local buried, unused, freed, erased, stale, dues = {}, {}, {}, {}, {}, {}
  for _, note in ipairs(unit.notes) do
    local id, seq = note[1], note.previous
    for _, event in ipairs(note[7]) do seq = append(event, seq) end
    local value = note[5] .. '|' .. op .. '|' .. seq .. '|' .. note[6]
    if note[4] == 'h' then
      call('HSET', HEADS, id, value)
    else
      call('HSET', TOMB, id, value)
      buried[#buried + 1] = id
      unused[#unused + 1] = id .. ':n'
      unused[#unused + 1] = id .. ':t'
    end
  end
  many('HDEL', HEADS, buried)
  many('HDEL', USE, unused)
  for _, event in ipairs(unit.events) do append(event, '') end
  for _, cell in ipairs(unit.cells) do
    local field, new = cell[1], cell[3]
    if new == '' then
      freed[#freed + 1] = field
    elseif new ~= '=' then
      call('HSET', CELLS, field, new .. '|' .. op .. '|' .. last .. '|' .. cell[4])
    end
  end
  many('HDEL', CELLS, freed)
  -- A total that is no number is left as it is, for rebuild to count anew: an error here would leave half a unit behind.
  for _, total in ipairs(unit.totals) do redis.pcall('HINCRBY', TOTALS, total[1], string.format('%.0f', total[2])) end
  for _, words in ipairs(unit.words) do
    if words[2] == '' then erased[#erased + 1] = words[1] else call('HSET', VAULT, words[1], words[2]) end
    stale[#stale + 1] = words[1]
  end
  many('HDEL', VAULT, erased)
  many('HDEL', VECTORS, stale)
  for _, due in ipairs(unit.due) do
    if due[2] == '' then
      call('ZREM', DUE, due[1])
    else
      dues[#dues + 1] = due[2]
      dues[#dues + 1] = due[1]
    end
  end
  many('ZADD', DUE, dues)
  for _, set in ipairs(unit.sets) do
    local key, command, member, value = KEYS[set[1]], set[2], set[3], set[4]
    if command == 'ZADD' then
      call('ZADD', key, value, member)
    elseif command == 'HSET' then
      call('HSET', key, member, value)
    else
      call(command, key, member)
    end
  end
  local request = unit.request
  if request[1] then
    call('SET', KEYS[request[1]], request[2] .. '|' .. last .. '|' .. request[3], 'PX', request[4])
  end
  return { 'ok', last, before, '', '' }
end

local answers = {}
for i, raw in ipairs(ARGV) do
  local unit = cjson.decode(raw)
  answers[i] = check(unit) or apply(unit)
end
return answers
