"""Watches files and directories for changes: definition files, and the paths that workflows watch."""
