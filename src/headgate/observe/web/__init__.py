"""The driver's web page and REST API: what they answer, who may ask, and the server."""
