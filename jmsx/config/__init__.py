"""What a program may set: options, broker URIs, destination URIs, redelivery policies of its own."""
