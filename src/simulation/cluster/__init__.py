"""Whole clusters on simulated machines: controllers, brokers and clients, and what goes wrong.

`machines` starts nodes as they ship, `application` uses them, `nemesis` hurts them, `watch` looks
at every step for what may never be, `level` plays a seed of the level `node`.
"""
