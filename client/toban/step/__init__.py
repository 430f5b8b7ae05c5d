"""What runs inside a step."""
