"""The file that a backup is: written once from its beginning to its end, and verified before anything of it is used.

What goes into it does not belong here: see `app/state_backup.py` and `app/state_restore.py`.
"""
