-- Before an answer leaves: do the notes it shows still stand at the versions it shows? If so, log that they were shown.
--
-- KEYS  1 log  2 heads  3 access  4 use  5 leases  6 cells
-- ARGV  now, ledger entry ('' none), owner that gave a sign of life ('' none), how many of the pairs count as used,
--       the last id of the log that the answer was made from ('' any), then pairs of note id and version
-- Returns {last id of the log, moved note ids…}; the ledger entry is written only when nothing has moved and the log
-- has not grown past what the answer saw. Returns {} and writes nothing where the workspace was dropped: it has no
-- policy cell then.

if redis.call('HEXISTS', KEYS[6], 'policy') == 0 then return {} end
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
local answer = { #last == 0 and '0-0' or last[1][1] }
for i = 6, #ARGV, 2 do
  local head = redis.call('HGET', KEYS[2], ARGV[i])
  if not head or string.match(head, '^([^|]*)|') ~= ARGV[i + 1] then answer[#answer + 1] = ARGV[i] end
end
if #answer == 1 and (ARGV[5] == '' or ARGV[5] == answer[1]) then
  if ARGV[2] ~= '' then redis.call('XADD', KEYS[3], '*', 'e', ARGV[2]) end
  for i = 6, 4 + 2 * tonumber(ARGV[4]), 2 do
    redis.call('HINCRBY', KEYS[4], ARGV[i] .. ':n', 1)
    redis.call('HSET', KEYS[4], ARGV[i] .. ':t', ARGV[1])
  end
end
if ARGV[3] ~= '' then redis.call('ZADD', KEYS[5], ARGV[1], ARGV[3]) end
return answer
