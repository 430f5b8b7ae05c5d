"""What the user typed, read: names of runs, parameters, payloads, files, labels, and shell completion."""
