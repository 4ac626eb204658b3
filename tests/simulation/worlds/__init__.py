"""Simulated failovers: cases by seed and every small history, carried out in memory, each asked about an anchor."""
