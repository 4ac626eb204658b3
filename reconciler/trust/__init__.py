"""Who may apply a plan, and who did: Ed25519 signatures and the audit log.

In: plan files and keys. Out: a verdict on signatures; lines of a log in which each holds the hash of the one before.
"""
