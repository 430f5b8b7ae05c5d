"""Due times: crontab expressions, intervals, single times, and times in words. Pure: no clock."""
