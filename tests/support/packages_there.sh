#!/bin/sh
# packages_there.sh - ends when ./dev test has fetched Python's packages, with that step's status. TESTS_PACKAGES names the file which
# that step leaves its status in; without it the packages are there.
[ -n "$TESTS_PACKAGES" ] || exit 0
while [ ! -s "$TESTS_PACKAGES" ]; do sleep 1; done
read -r status <"$TESTS_PACKAGES"
[ "$status" = 0 ] || echo "fetching Python's packages ended with $status: ./dev test said why"
exit "$status"
