"""`python -m advsurprise` is `advsurprise`."""

from advsurprise.cli.main import main

main()
