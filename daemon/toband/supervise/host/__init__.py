"""The machine below the daemon: disk space, what the doctor inspects, and the archive of ended runs."""
