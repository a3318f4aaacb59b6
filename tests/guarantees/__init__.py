"""The guarantee table of the README: each cell is a test, on a real broker."""
