"""The pure heart: what an anchor is, how it is searched for, what is concluded. No I/O, no clock, no logging."""
