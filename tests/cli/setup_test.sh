#!/usr/bin/env bash
# scripts/setup: what a user needs is a part of what --dev, --bench and --all install, and no tool of tests.
set -euo pipefail

fail() { echo "setup_test: $*" >&2; exit 1; }

for option in --dev --bench --all; do
  missing=$(comm -23 <(scripts/setup --list) <(scripts/setup --list "$option"))
  [[ -z $missing ]] || fail "$option lacks $missing"
done
for package in libgtest-dev librapidcheck-dev clang-format-19 ccache iproute2 python3-yaml; do
  ! scripts/setup --list | grep -x "$package" >/dev/null || fail "a user has no need of $package"
  scripts/setup --list --dev | grep -x "$package" >/dev/null || fail "--dev lacks $package"
  scripts/setup --list --all | grep -x "$package" >/dev/null || fail "--all lacks $package"
done
for needed in g++ cmake libdnnl-dev libhwy-dev openmpi-bin; do
  scripts/setup --list | grep -x "$needed" >/dev/null || fail "a user needs $needed"
done
! scripts/setup --lits 2>/dev/null || fail "an unknown argument is taken"

# The scripts ask for what they use.
grep -q 'scripts/setup$' scripts/demo || fail "scripts/demo installs more than a user needs"
grep -q 'scripts/setup --dev' scripts/test || fail "scripts/test lacks its tools"
