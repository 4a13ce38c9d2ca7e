"""The daemon's door: HTTP/1.1 over a Unix socket. ``app`` answers, ``serve`` opens the socket; no domain rule lives
here."""
