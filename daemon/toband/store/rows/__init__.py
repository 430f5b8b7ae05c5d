"""One module per noun: the class that stores it, with its statements.

Connections, transactions and encoding are in `sql`.
"""
