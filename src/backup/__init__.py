"""Backups of a cluster in a directory or an object store. A client of the cluster.

`manifest` is the format of a store and its checks (pure), `plan` the decisions of a backup and of a
restore (pure), `objectstore` the store, `capture` makes a backup, `restore` restores one, and
`catalog` lists, verifies and deletes backups.
"""
