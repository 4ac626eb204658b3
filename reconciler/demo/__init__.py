"""``reconciler demo``: a whole failover on this machine, and the proof that nothing was lost or doubled."""
