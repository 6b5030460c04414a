"""Topics of MQTT 5 brokers as sources and sinks."""
