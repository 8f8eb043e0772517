"""Pure worlds of other JAX libraries, compiled into our loops. Guide: docs/foreign_worlds.md."""
