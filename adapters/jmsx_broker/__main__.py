"""`python -m jmsx_broker`: the `jmsx broker` command without the rest of `jmsx`."""

from jmsx_broker.cli import app

app(prog_name="jmsx broker")
