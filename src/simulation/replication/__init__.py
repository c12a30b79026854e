"""Controller and partitions alone on virtual time: the pure decisions, and pure replicas over
modelled logs, tens of thousands of events a second.

`world.py` plays them, `broker.py` is a machine, `controller.py` the metadata, `options.py` what is
drawn, `checks.py` what must hold. Level `partitions` of the simulation.
"""
