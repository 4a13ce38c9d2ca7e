-- Files notes anew in the due index, each only while it stands at the version its time was computed from, and none once
-- the policy has moved or the workspace was dropped.
--
-- KEYS  1 cells  2 heads  3 tomb  4 due
-- ARGV  policy stamp, then triples: note id, version ('' where there is neither head nor tomb), score ('' removes)
-- Returns how many were not there already, or -1 when the policy is another one.

local function stamp(held) return held and string.match(held, '^([^|]*)|') or '' end

if stamp(redis.call('HGET', KEYS[1], 'policy')) ~= ARGV[1] then return -1 end
local filed = 0
for i = 2, #ARGV, 3 do
  local id, version, score = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local held = redis.call('HGET', KEYS[2], id) or redis.call('HGET', KEYS[3], id)
  if stamp(held) == version then
    if score == '' then
      filed = filed + redis.call('ZREM', KEYS[4], id)
    else
      filed = filed + redis.call('ZADD', KEYS[4], 'CH', score, id)
    end
  end
end
return filed
