"""`python -m jmsx` is `jmsx`."""

from jmsx.cli import main

main()
