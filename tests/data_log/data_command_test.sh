#!/bin/sh
# weft data, from the outside: generate, convert, stats, and the exit codes of what cannot be done.
# Usage: data_command_test.sh WEFT CONFIG
set -eu
weft=$1
config=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

expect() {  # expect CODE COMMAND...
  wanted=$1
  shift
  code=0
  "$@" >out.txt 2>err.txt || code=$?
  if [ "$code" -ne "$wanted" ]; then
    echo "exit code $code instead of $wanted: $*"
    cat out.txt err.txt
    exit 1
  fi
}

small="--set data.synthetic.samples=3000 --set data.synthetic.eval_samples=2000"
expect 0 "$weft" data generate "$config" $small --out train.weft
grep -q '3,000 samples' out.txt
expect 0 "$weft" data generate "$config" $small --split eval --out eval.weft --quiet
test ! -s out.txt
kept="--set data.format=weft --set data.path=train.weft --set data.eval_path=eval.weft"
expect 0 "$weft" data stats "$config" $kept --split eval --format json
grep -q '"samples": 2000' out.txt
grep -q '"bayes_ne": 0.' out.txt
expect 0 "$weft" data stats "$config" $kept --samples 100
grep -q '^100 samples read' out.txt
expect 0 "$weft" data convert "$config" $kept --out copy.weft --samples 1500
grep -q '1,500 samples' out.txt

expect 2 "$weft" data
expect 2 "$weft" data generate "$config" $small
expect 2 "$weft" data generate "$config" $small --samples 4000 --out x.weft
expect 2 "$weft" data generate "$config" $kept --out x.weft
grep -q 'weft data convert' err.txt
expect 2 "$weft" data stats "$config" --split test
expect 2 "$weft" data stats "$config" --set data.format=weft --set data.path=train.weft --split eval
expect 3 "$weft" data stats "$config" --set data.format=weft --set data.path=absent.weft
head -c 5000 train.weft >cut.weft
expect 3 "$weft" data stats "$config" --set data.format=weft --set data.path=cut.weft
grep -q 'cut.weft' err.txt
expect 1 "$weft" data convert "$config" $kept --out absent/x.weft
test ! -e x.weft
