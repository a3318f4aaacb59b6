"""Frame programs that run on a real broker and on the fake one, and what is needed to compare them."""
