"""Commands to learn the product by: demo, completion."""
