#!/bin/sh
# Generate src/proto from the .proto files: messages and their types only, importing each other relatively.
# usage: proto/generate.sh PYTHON [OUTPUT_FOLDER]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
output=${2:-$root/src/proto}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$root/proto"
"$python" -m grpc_tools.protoc -I . --python_out="$work" --pyi_out="$work" quorumlog/v1/*.proto
sed -i 's/^from quorumlog\.v1 import/from . import/' "$work"/quorumlog/v1/*_pb2.py "$work"/quorumlog/v1/*_pb2.pyi
sed -i 's/\b_Mapping\]/_Mapping[str, object]]/g' "$work"/quorumlog/v1/*_pb2.pyi
rm -f "$output"/*_pb2.py "$output"/*_pb2.pyi
cp "$work"/quorumlog/v1/*_pb2.py "$work"/quorumlog/v1/*_pb2.pyi "$output"/
