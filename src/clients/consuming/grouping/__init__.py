"""A consumer as a member of a group (KIP-848): the coordinator shares the partitions out.

`member` decides: pure, it is told answers and the time, and says what to send and which partitions
to give back or to take. `membership` carries that out, on tasks of its own; `calls` are the calls
to the group's coordinator; `handed` knows what the application has, `callbacks` what it is told;
`group_consumer` is the face.
"""
