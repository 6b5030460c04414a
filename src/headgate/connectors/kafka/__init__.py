"""Topics of Apache Kafka as sources and sinks, through confluent-kafka."""
