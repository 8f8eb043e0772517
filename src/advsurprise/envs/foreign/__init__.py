"""Pure worlds of other JAX libraries, compiled into our loops. What was tried: docs/foreign_worlds.md."""
