#!/bin/bash
# A standalone HBase (master, region server and its own ZooKeeper in one process, data in /data) and its Thrift 1 server
# on port 9090. When one of them ends, so does the container.
set -euo pipefail
jvm=(java @/etc/hbase/jvm-options -cp '/etc/hbase:/opt/hbase/*')
"${jvm[@]}" "-Xmx${HEAP:-384m}" org.apache.hadoop.hbase.master.HMaster start &
server=$!
"${jvm[@]}" -Xmx128m org.apache.hadoop.hbase.thrift.ThriftServer start &
thrift=$!
trap 'kill -TERM "$thrift" "$server" 2>/dev/null' TERM INT
wait -n || true
kill -TERM "$thrift" "$server" 2>/dev/null || true
wait
