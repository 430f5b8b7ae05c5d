"""Every operation of the HTTP API that is one call of the daemon; one module per group of nouns.

To offer another call, add its Operation here, and its row to the table of the access tests.
"""
