"""The waist: types, expressions, logical nodes and topologies as plain immutable data.

The only thing the language and the engines share. Must not know the parser, the catalog or any engine.
"""
