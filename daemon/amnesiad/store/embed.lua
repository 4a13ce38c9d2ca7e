-- Files vectors, each only while the words it was made of stand: words that change or go take their vector with them,
-- and one that comes late must not outlive them.
--
-- KEYS  1 vault  2 vectors
-- ARGV  triples: note id, SHA-1 of the words as stored, value
-- Returns how many were filed.

local filed = 0
for i = 1, #ARGV, 3 do
  local words = redis.call('HGET', KEYS[1], ARGV[i])
  if words and redis.sha1hex(words) == ARGV[i + 1] then
    redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 2])
    filed = filed + 1
  end
end
return filed
