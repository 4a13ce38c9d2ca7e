"""What agents ask by themselves: hooks at moments of their own, and a status line.

``hooking`` answers a hook, ``status_line`` draws the line. The others remember, in this process only: ``twins`` what
was told a moment ago, ``announced`` who makes which call over MCP, ``whereabouts`` what a directory belongs to,
``presence`` where a session was heard of.
"""
