"""Values of single fields: durations, sizes, paths, and values of parameters. No YAML, no templates."""
