"""What the product remembers: one append-only store, and the pure code above it."""
