"""Controller and partitions alone on virtual time: the pure decisions, and pure replicas over
modelled logs, tens of thousands of events a second. Level `partitions` of the simulation.

`run.py` plays a seed in a `world.py`: `broker.py` is a machine, `controller.py` the metadata;
brokers come and go in `lives.py`, records in `traffic.py`, changes of the ISR in `isr.py`, faults
in `weather.py`. `options.py` is what is drawn, `checks.py` what must hold.
"""
