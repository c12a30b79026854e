"""Decoding of record values on read: the options valueFormat, valueSchema and mode.

The decoded value is the column `value`, a struct in place of the binary. It is not flattened: the
other columns keep their names whatever the schema has, and `select("offset", "value.*")` flattens
it. A tombstone has a null struct and is no bad value.

`plan` finds the type of the column and checks it; `decoder` has the parts that the formats share;
`json_values`, `arrow_values`, `avro_values` (with `avro_binary`) and `protobuf_values` are the
formats; `bad_values` handles bad values.
"""
