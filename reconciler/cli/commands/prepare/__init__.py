"""Commands for the time before a failover: init, config, track, anchors, watch, drill."""
