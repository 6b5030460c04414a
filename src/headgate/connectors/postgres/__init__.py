"""Tables and changes of PostgreSQL as sinks and sources, through psycopg."""
