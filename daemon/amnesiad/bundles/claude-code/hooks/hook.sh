# Hands the payload of a hook to the daemon and prints its answer; without a daemon it prints nothing, and exits 0.

# At the start of a session only the command itself can tell the session's shells whom they speak for.
if [ -n "${CLAUDE_ENV_FILE:-}" ] && command -v amnesia >/dev/null; then
  amnesia hook claude-code
  exit 0
fi

# Where the daemon listens by default; the command knows the settings, and is slower.
socket=${AMNESIA_SOCKET:-}
for usual in "${XDG_RUNTIME_DIR:-}/amnesia/amnesia.sock" \
  "${XDG_STATE_HOME:-$HOME/.local/state}/amnesia/run/amnesia.sock" \
  "$HOME/Library/Application Support/amnesia/run/amnesia.sock"; do
  [ -n "$socket" ] || [ ! -S "$usual" ] || socket=$usual
done

# A workspace that the environment names would have to be quoted for a URL, which a shell cannot.
if [ -S "$socket" ] && [ -z "${AMNESIA_WORKSPACE:-}" ] && command -v curl >/dev/null; then
  answer=$(curl -qsf --noproxy amnesiad --max-time 1 --unix-socket "$socket" -H Expect: --data-binary @- \
    http://amnesiad/v1/hooks/claude-code) && printf %s "$answer"
elif command -v amnesia >/dev/null; then
  amnesia hook claude-code
fi
exit 0
