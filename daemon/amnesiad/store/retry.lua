-- A parked event goes back onto the stream, once however many ask for it.
-- KEYS  1 the dead stream  2 the stream of events     ARGV  1 the event's place. Returns 1, or 0 if nothing is there.

local row = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])[1]
if not row then return 0 end

local raw = ''
for i = 1, #row[2], 2 do
  if row[2][i] == 'e' then raw = row[2][i + 1] end
end
redis.call('XADD', KEYS[2], '*', 'e', raw)
return redis.call('XDEL', KEYS[1], row[1])
