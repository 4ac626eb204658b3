"""Signatures of plans: which keys may approve a plan.

In: plan files and keys. Out: the signer of a plan, or an error.
"""
