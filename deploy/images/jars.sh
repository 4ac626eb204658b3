#!/bin/bash
# jars.sh kafka|hbase|spark: puts that set of jars into /out with the product's own fetcher.
#
# The product defines the sets of Kafka and Spark; the tests define that of HBase, which only they start
# (tests/demo/lab/servers/jars.py, which the Dockerfile copies as server_jars).
# A set that is already in /jars is used unchanged. Otherwise Maven is installed; MAVEN_MIRROR replaces Maven Central.
set -euo pipefail
case $1 in
  spark) name=spark-kafka module=reconciler.artifacts place='spark_kafka_connector(print)[0].parent' ;;
  kafka) name=kafka module=reconciler.artifacts place='kafka_jars(print)' ;;
  *) name=$1 module=server_jars place="$1_jars()" ;;
esac
found=$(compgen -G "/jars/$name-*/manifest.json" || true)
if [ -z "$found" ]; then
  install-packages maven
  if [ -n "${MAVEN_MIRROR:-}" ]; then
    mkdir -p ~/.m2
    cat >~/.m2/settings.xml <<END
<settings><mirrors><mirror><id>given</id><mirrorOf>*</mirrorOf><url>$MAVEN_MIRROR</url></mirror></mirrors></settings>
END
  fi
fi
mkdir /out
"${PYTHON:-python3}" - "$1" <<END
import shutil, sys
from pathlib import Path
import $module as sets
place = sets.$place
shutil.copytree(place, Path("/out", place.name) if sys.argv[1] == "spark" else "/out", dirs_exist_ok=True)
END
