"""The imperative shell: loads, decides with the domain, saves, and only then acts."""
