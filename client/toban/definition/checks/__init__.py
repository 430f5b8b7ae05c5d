"""From nodes to the model: the checks of documents, steps, schedules and templates, and their problems."""
