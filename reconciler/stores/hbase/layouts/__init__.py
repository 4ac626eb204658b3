"""HBase rows as pure codecs, one module a layout: cells to stored offsets and back. No I/O, no clock."""
