"""`python -m jmsx.cli` is `jmsx`."""

from jmsx.cli import main

main()
