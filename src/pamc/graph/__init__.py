"""From edges or features to positive pairs."""
