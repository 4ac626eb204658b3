#!/bin/sh
# Example: spark-submit behind the hook. Arguments go to spark-submit: ./spark-submit.sh clicks.py
#
# For client deploy mode. In cluster mode the driver does not see this environment: ship both files to it
# and set the two variables there.
set -eu

exec reconciler hook \
    --config "${RECONCILER_CONFIG:-/etc/clicks/reconciler.toml}" \
    --job "${RECONCILER_JOB:-clicks}" \
    --wait "${RECONCILER_WAIT:-300}" \
    -- spark-submit "$@"
