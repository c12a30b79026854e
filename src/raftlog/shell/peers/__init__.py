"""How members reach each other: streams of frames, calls, addresses, queues, and what breaks."""
