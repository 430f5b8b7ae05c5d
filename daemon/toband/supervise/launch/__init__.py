"""The daemon's side of the launch protocol: parked shims, launches, and how attempts ended.

Code that runs inside the shim is in `shim`.
"""
