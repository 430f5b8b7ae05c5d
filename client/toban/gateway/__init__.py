"""The HTTP gateway, `toban web`: REST, JSON and server-sent events for programs, and the files of the console.

A thin client like any other. It has no identity and no state of its own: each request is made with the credential that
came with it. Importing this package needs the extra `web`.
"""
