"""The only code that speaks Redis: keys, the commit script, the log, vault, owners, workspaces, clock, embedded server.

It knows shapes and atomicity; it knows no domain rule. What may happen is decided in ``amnesiad.core``, and what is
decided is written here, in one way: ``Log.commit``.
"""
