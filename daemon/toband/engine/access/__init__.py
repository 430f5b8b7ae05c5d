"""Access: which identity a credential proves, what an identity may do, and the log of what was done.

The rules of identities and of the chain of entries are in `domain`. What a call needs is in the contract; `api` asks.
"""
