"""Templates and conditions: finding them, their names, their cost, and evaluating them with CEL."""
