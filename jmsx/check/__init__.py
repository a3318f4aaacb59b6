"""What `jmsx check` asks a broker, and what it finds."""
