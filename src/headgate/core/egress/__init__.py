"""How a record leaves its task: writer, router, partition, subpartition, registry."""
