"""One module per table family: the statements that read and write it.

Connections, transactions and encoding are in `sql`.
"""
