"""The verbs that change notes, and what all of them go through.

``loop`` writes and tries again, ``guarding`` lets no secret by, ``change`` is one attempt at one unit and ``eviction``
makes room in it. ``remembering`` brings words in, ``transitions`` moves one note from state to state, ``mirroring``
records what became of it elsewhere, ``forgetting`` takes words out.
"""
