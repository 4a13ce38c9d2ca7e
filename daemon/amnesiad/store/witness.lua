-- Before an answer leaves: do the notes it shows still stand at the versions it shows? If so, log that they were shown.
--
-- KEYS  1 log  2 heads  3 access  4 use  5 leases  6 cells  7 what was shown already (a hash, note id -> mark)
-- ARGV  now, ledger entry ('' none), owner that gave a sign of life ('' none), how many of the notes count as used,
--       the last id of the log that the answer was made from ('' any), the version of the policy it was made by
--       ('' any), mark for KEYS[7] ('' keeps none), lifetime of KEYS[7] in ms, then for each note its id, its version
--       and the mark it was seen with in KEYS[7] ('' none)
-- Returns {last id of the log, 1 where a later policy is in force, {moved note ids}, {note id, mark} of each that was
-- shown meanwhile}. Ledger entry and marks are written only when none of it has moved and the log has not grown past
-- what the answer saw. Returns {} and writes nothing where the workspace was dropped: it has no policy cell then.

local policy = redis.call('HGET', KEYS[6], 'policy')
if not policy then return {} end
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
last = #last == 0 and '0-0' or last[1][1]
-- A cell that is damaged, or behind, is for rebuild to mend, and must not stop every answer.
local version = tonumber(string.match(policy, '^(%d+)|') or '')
local later = ARGV[6] ~= '' and version and version > tonumber(ARGV[6]) and 1 or 0

local moved, shown = {}, {}
local used = 9 + 3 * tonumber(ARGV[4])
for i = 9, #ARGV, 3 do
  local head = redis.call('HGET', KEYS[2], ARGV[i])
  if not head or string.match(head, '^([^|]*)|') ~= ARGV[i + 1] then moved[#moved + 1] = ARGV[i] end
  if ARGV[7] ~= '' and i < used then
    local mark = redis.call('HGET', KEYS[7], ARGV[i]) or ''
    if mark ~= ARGV[i + 2] then
      shown[#shown + 1] = ARGV[i]
      shown[#shown + 1] = mark
    end
  end
end
if later == 0 and #moved == 0 and #shown == 0 and (ARGV[5] == '' or ARGV[5] == last) then
  if ARGV[2] ~= '' then redis.call('XADD', KEYS[3], '*', 'e', ARGV[2]) end
  for i = 9, used - 1, 3 do
    redis.call('HINCRBY', KEYS[4], ARGV[i] .. ':n', 1)
    redis.call('HSET', KEYS[4], ARGV[i] .. ':t', ARGV[1])
    if ARGV[7] ~= '' then
      redis.call('HSET', KEYS[7], ARGV[i], ARGV[7])
      redis.call('PEXPIRE', KEYS[7], ARGV[8])
    end
  end
end
if ARGV[3] ~= '' then redis.call('ZADD', KEYS[5], ARGV[1], ARGV[3]) end
return { last, later, moved, shown }
