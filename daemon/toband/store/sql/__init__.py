"""The database: connections, the writer thread, tables, row encoding, schema and migrations.

No statement about a particular noun belongs here; those are in `rows`.
"""
