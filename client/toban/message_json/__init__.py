"""The API's messages as JSON, by the one rule of docs/json.md: written, read and described. It knows no call.

The command line (`-o json`) and the HTTP gateway share it.
"""
