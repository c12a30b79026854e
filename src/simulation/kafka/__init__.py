"""Clients of the Kafka protocol for simulated clusters: bytes through the simulated pipe, which
splits them at drawn points.

`wire` is a connection, `client` knows leaders and versions, `application` uses a cluster and writes
down what it is told, `level` plays a seed of the level `kafka`.
"""
