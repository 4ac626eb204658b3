"""Signatures of plans and the audit log: which keys may approve a plan, and who applied one.

In: plan files, keys, attempts to write. Out: the signers of a plan, or an error; lines in the audit log.
"""
