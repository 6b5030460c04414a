"""How a record arrives: channels, gates, the deserializer."""
