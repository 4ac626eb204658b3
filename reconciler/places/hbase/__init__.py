"""Offset stores in HBase through its Thrift 1 server, a module a layout; ``address.open_address`` opens one."""
