"""The daemon as a service of Windows, for `toban service` there: its files, its entry, and the service control manager.

Nothing here asks the daemon; that is for the commands.
"""
