#!/bin/sh
# Runs a command, and kills all of its session when standard input ends.
exec 9<&0 </dev/null
{
  read -r line <&9
  read -r own rest </proc/self/stat
  for pass in 1 2 3; do
    for place in /proc/[0-9]*; do
      { read -r pid name state parent group session rest <"$place/stat"; } 2>/dev/null || continue
      [ "$session" != $$ ] || [ "$pid" = "$own" ] || kill -KILL "$pid"
    done
  done
} >/dev/null 2>&1 &
watch=$!
exec 9<&-
"$@"
status=$?
kill -KILL $watch
exit $status
