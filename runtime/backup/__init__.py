"""Backups of an instance on the embedded log in a store of objects: its log and its state, as of one commit, in files that are uploaded by what is new.

`flowql backup` makes one, and an instance with `state: {remote: URL}` makes them all the time (docs/internals/remote.md).
"""
