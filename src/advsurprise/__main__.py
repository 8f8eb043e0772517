"""`python -m advsurprise` is `advsurprise`."""

from advsurprise.cli import main

main()
