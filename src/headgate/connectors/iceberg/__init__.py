"""Tables of Apache Iceberg as sources and sinks, through PyIceberg."""
