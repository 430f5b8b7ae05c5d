"""Time: which schedules are due, what happens to each due time, and why.

The rules themselves are pure: `domain.misfire`. Reading cron expressions and phrases is `toban.definition.timing`.
"""
