-- The one write primitive. Compares and sets; knows no domain rule. See log.py for the Python side of this protocol.
--
-- KEYS  1 log  2 heads  3 vault  4 tomb  5 cells  6 due  7 totals  8 use, then whatever keys the units name by number
-- ARGV  the number of units, then each unit flat, every list led by its length:
--         op
--         notes   id, source (h head | t tomb | - none), expected version, target (h | t), version, value, events…
--         cells   field, expected stamp, new stamp ('' deletes, '=' only compares), payload
--         totals  field, delta, limit ('' none)
--         words   id, value ('' deletes)
--         due     id, score ('' removes)
--         sets    key number, command, member or field, value
--         events  workspace events
--         request key number (0 none), body hash, answer, lifetime in ms
-- A unit is all or nothing; units are independent. Heads, tombs and cells hold 'stamp|op|…': a conflict whose holder
-- carries our own op is our own success, whose reply was lost.
-- Returns for each unit {status, seq, previous last id, detail, current}: ok | own | conflict | full | replay | reused.

local at = 0
local function take()
  at = at + 1
  return ARGV[at]
end
local function number() return tonumber(take()) end

local function parse(value)
  if not value then return '', '', '' end
  local a = string.find(value, '|', 1, true)
  local b = string.find(value, '|', a + 1, true)
  local c = string.find(value, '|', b + 1, true)
  return string.sub(value, 1, a - 1), string.sub(value, a + 1, b - 1), string.sub(value, b + 1, c - 1)
end

local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
last = #last == 0 and '0-0' or last[1][1]

local function append(event, previous)
  last = redis.call('XADD', KEYS[1], '*', 'e', event, 'p', previous)
  return last
end

local function group(width)
  local rows = {}
  for i = 1, number() do
    local row = {}
    for j = 1, width do row[j] = take() end
    rows[i] = row
  end
  return rows
end

local function read_unit()
  local unit = { op = take(), notes = {} }
  for i = 1, number() do
    local note = { id = take(), source = take(), expected = take(), target = take(), version = take(), value = take() }
    note.events = group(1)
    unit.notes[i] = note
  end
  unit.cells, unit.totals, unit.words = group(4), group(3), group(2)
  unit.due, unit.sets, unit.events = group(2), group(4), group(1)
  unit.request = { number(), take(), take(), take() }
  return unit
end

local function check(unit)
  local request = unit.request
  if request[1] > 0 then
    local prior = redis.call('GET', KEYS[request[1]])
    if prior then
      local bar = string.find(prior, '|', 1, true)
      if string.sub(prior, 1, bar - 1) ~= request[2] then return { 'reused', '', last, '', '' } end
      return { 'replay', '', last, '', string.sub(prior, bar + 1) }
    end
  end
  for _, note in ipairs(unit.notes) do
    local head, tomb = redis.call('HGET', KEYS[2], note.id), false
    if note.source ~= 'h' or not head then tomb = redis.call('HGET', KEYS[4], note.id) end
    local held = head or tomb
    local stamp, op, seq = parse(held)
    note.previous = seq
    local place = head and 'h' or (tomb and 't' or '-')
    if place ~= note.source or stamp ~= note.expected then
      if held and op == unit.op then return { 'own', seq, last, '', '' } end
      return { 'conflict', '', last, 'note:' .. note.id, held or '' }
    end
  end
  for _, cell in ipairs(unit.cells) do
    local held = redis.call('HGET', KEYS[5], cell[1])
    local stamp, op = parse(held)
    if stamp ~= cell[2] then
      if held and op == unit.op then return { 'own', '', last, '', '' } end
      return { 'conflict', '', last, cell[1], held or '' }
    end
  end
  for _, total in ipairs(unit.totals) do
    if total[3] ~= '' and tonumber(total[2]) > 0 then
      local value = tonumber(redis.call('HGET', KEYS[7], total[1]) or '0')
      if value + tonumber(total[2]) > tonumber(total[3]) then
        return { 'full', '', last, total[1], tostring(value) }
      end
    end
  end
  return nil
end

local function apply(unit)
  local before = last
  for _, note in ipairs(unit.notes) do
    local seq = note.previous
    for _, event in ipairs(note.events) do seq = append(event[1], seq) end
    local value = note.version .. '|' .. unit.op .. '|' .. seq .. '|' .. note.value
    if note.target == 't' then
      redis.call('HSET', KEYS[4], note.id, value)
      redis.call('HDEL', KEYS[2], note.id)
      redis.call('HDEL', KEYS[8], note.id .. ':n', note.id .. ':t')
    else
      redis.call('HSET', KEYS[2], note.id, value)
    end
  end
  for _, event in ipairs(unit.events) do append(event[1], '') end
  for _, cell in ipairs(unit.cells) do
    if cell[3] == '' then
      redis.call('HDEL', KEYS[5], cell[1])
    elseif cell[3] ~= '=' then
      redis.call('HSET', KEYS[5], cell[1], cell[3] .. '|' .. unit.op .. '||' .. cell[4])
    end
  end
  for _, total in ipairs(unit.totals) do redis.call('HINCRBY', KEYS[7], total[1], total[2]) end
  for _, words in ipairs(unit.words) do
    if words[2] == '' then redis.call('HDEL', KEYS[3], words[1]) else redis.call('HSET', KEYS[3], words[1], words[2]) end
  end
  for _, due in ipairs(unit.due) do
    if due[2] == '' then redis.call('ZREM', KEYS[6], due[1]) else redis.call('ZADD', KEYS[6], due[2], due[1]) end
  end
  for _, set in ipairs(unit.sets) do
    local key = KEYS[tonumber(set[1])]
    if set[2] == 'ZADD' then
      redis.call('ZADD', key, set[4], set[3])
    elseif set[2] == 'HSET' then
      redis.call('HSET', key, set[3], set[4])
    else
      redis.call(set[2], key, set[3])
    end
  end
  local request = unit.request
  if request[1] > 0 then
    redis.call('SET', KEYS[request[1]], request[2] .. '|' .. last .. '|' .. request[3], 'PX', request[4])
  end
  return { 'ok', last, before, '', '' }
end

local answers = {}
for i = 1, number() do
  local unit = read_unit()
  answers[i] = check(unit) or apply(unit)
end
return answers
