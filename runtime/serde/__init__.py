"""Bytes of records <-> rows, one record at a time: the reference meaning of every format.

Entry point: `flowql.runtime.serde.codec`. Knows types and formats of the plan; knows nothing of batches, topics or operators.
Vector decoding and encoding live with the kernels and must give what is written here.
"""
