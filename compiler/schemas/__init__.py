"""SQL columns as the schemas of a registry (Avro, JSON Schema, Protobuf) and back. Pure text; the bytes are the runtime's."""
