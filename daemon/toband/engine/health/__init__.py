"""The daemon's health: conditions, the monitor of disk and descriptors, admission of new work, and the doctor.

Reading the machine itself is an adapter: `supervise.host`.
"""
