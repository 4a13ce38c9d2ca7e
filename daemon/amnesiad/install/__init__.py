"""What ``amnesia install`` writes and undoes: agents' settings, a plugin folder, a service of the system's.

Everything is planned first, as changes to files that can be shown, and only then made. It reads and writes files of the
user who runs it and asks the daemon nothing.
"""
