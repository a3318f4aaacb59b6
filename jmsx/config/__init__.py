"""Configuration: connection options, broker URIs, and redelivery policies that the application writes itself."""
