"""The guarantee table of the guide: each cell is a test, on a real broker."""
