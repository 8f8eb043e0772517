"""`python -m advsurprise` runs `advsurprise`."""

from advsurprise.cli.main import main

main()
