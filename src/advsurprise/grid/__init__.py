"""Physics of a compiled grid world, as pure functions on arrays."""
