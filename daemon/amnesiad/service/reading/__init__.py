"""The verbs that show notes, and what all of them go through.

``showing`` logs and checks an answer before it leaves; ``recalling`` and ``injecting`` choose what is in it, by
``scoring``, ``listening`` (what is news to a context) and ``correcting`` (what a context must be told). ``looking``,
``ledger``, ``exposing``, ``explaining`` and ``feed`` show without using. Nothing here changes a note but by its use.
"""
