"""The broker's operations as plain calls with plain values.

Both front ends, gRPC and Kafka, translate a request to a call of this package. An operation
validates its arguments and carries them out: a read on this broker's metadata image, a change
through the active controller. Arguments and results are the frozen structs of `metadata.commands`,
parts of `MetadataImage`, and the structs of these modules; none is a message of a protocol.

Every operation gets a `RequestContext`.

The data path has no call here: a front end holds the broker's own `ReplicaWriter`,
`ReplicaReader` and `GroupCoordinator`, which take plain values already.
"""
