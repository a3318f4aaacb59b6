"""`python -m jmsx` runs the command `jmsx`."""

from jmsx.cli import main

main()
