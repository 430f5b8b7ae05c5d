"""The shape of a definition: field types, the pydantic models, the JSON Schema, and the check of one mapping."""
