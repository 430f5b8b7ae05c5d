"""Safe work on files below the state directory: names, directories without links, budgets, holes, worker threads.

Nothing here knows the meaning of the files; that is for `logs`, `artifacts` and `launch`.
"""
