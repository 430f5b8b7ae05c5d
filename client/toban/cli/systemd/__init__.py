"""The daemon as a service of systemd, for `toban service`: its files, its versions, and the service manager.

Nothing here asks the daemon; that is for the commands.
"""
