#!/bin/bash
# kafka broker        one broker that is its own controller; CLUSTER_ID is its cluster's id, and PROPERTIES, lines of
#                     server.properties, override those of /etc/kafka/server.properties
# kafka mirror FILE   MirrorMaker 2 with that file
#
# HEAP: the JVM's heap. KILL_FILE, for demonstrations: the broker is killed (SIGKILL) once that file exists.
set -euo pipefail
jvm=(java "-Xmx${HEAP:-384m}" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.level=OFF
  -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -Dorg.slf4j.simpleLogger.showDateTime=true
  "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS" -cp '/opt/kafka/*')

case ${1:-} in
  mirror)
    exec "${jvm[@]}" org.apache.kafka.connect.mirror.MirrorMaker "${2:?the properties of MirrorMaker}"
    ;;
  broker) ;;
  *)
    sed -n '2,6s/^# \?//p' "$0"
    exit 2
    ;;
esac

settings=/tmp/server.properties
cat /etc/kafka/server.properties - >"$settings" <<<"${PROPERTIES:-}"
"${jvm[@]}" kafka.tools.StorageTool format --ignore-formatted -t "${CLUSTER_ID:?}" -c "$settings" >/dev/null
if [ -z "${KILL_FILE:-}" ]; then
  exec "${jvm[@]}" kafka.Kafka "$settings"
fi

"${jvm[@]}" kafka.Kafka "$settings" &
broker=$!
trap 'kill -TERM "$broker"' TERM INT
while kill -0 "$broker" 2>/dev/null; do
  if [ -e "$KILL_FILE" ]; then
    echo "$KILL_FILE exists: killing the broker"
    kill -KILL "$broker"
    break
  fi
  sleep 0.2 &
  wait $! || true
done
wait "$broker"
