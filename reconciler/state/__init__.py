"""The state of the product: one append-only store, and the pure code above it."""
