"""The machine below the daemon: disk space, inspection for the doctor, and the archive of ended runs."""
