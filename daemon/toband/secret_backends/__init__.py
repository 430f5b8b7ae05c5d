"""Where the secrets key and the values of external secrets are: key files, directories, and other programs."""
