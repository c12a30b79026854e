"""Where in the segments something lies, by offset and by time, and the ranges that readers hold."""
