"""HBase rows as pure codecs, a module a layout: cells to stored offsets and back, without I/O or clock.

``anchored`` is this product's own. ``flowlet`` is the third of CDAP's layouts.
"""
