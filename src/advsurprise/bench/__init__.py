"""Benchmarks and checks that users can run: `advsurprise bench …`."""
