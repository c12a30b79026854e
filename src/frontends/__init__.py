"""The front ends, gRPC, Kafka and HTTP: they validate and translate requests, and call the
broker."""
