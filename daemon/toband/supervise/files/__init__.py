"""Safe work on files below the state directory: names, directories without links, budgets, holes, worker threads.

Nothing here knows what the files mean; that is for `logs`, `artifacts` and `launch`.
"""
