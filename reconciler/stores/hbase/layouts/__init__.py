"""HBase rows as pure codecs, a module a layout: cells to stored offsets and back, without I/O or clock.

``flowlet`` is the third of CDAP's layouts. ``cdap_companion`` and ``cloudera_companion`` are this product's own rows
beside those of the two foreign layouts.
"""
