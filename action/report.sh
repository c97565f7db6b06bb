#!/usr/bin/env bash
# Counts as outputs, the job summary, and the exit code that the action will end with.
set -euo pipefail

random() { head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n'; }

# What is wrong with a report is told in its own words, which are no commands.
token=$(random)
echo "::stop-commands::$token"
trap 'printf "\n::%s::\n" "$token"' EXIT

cgins() {
  # Not in the repository under test: a `pytest_cgins` of its own would be imported instead.
  (cd "$GITHUB_ACTION_PATH" && "$CGINS_PYTHON" -c 'import sys; from pytest_cgins.app.cli import main; sys.exit(main())' "$@")
}
summary() { cgins summary "$@" "$CGINS_REPORT"; }

case $CGINS_EXIT_CODE in
  0) status=passed ;;
  1) status=failed ;;
  5) status=empty ;;
  6) status=infrastructure ;;
  *) status=error ;;
esac

report_path=
untold=
names=(total passed failed regressed errors skipped weak)
verdict=
declare -A counts=()
if [[ -f $CGINS_REPORT ]] && lines=$(summary --format=counts); then
  report_path=$CGINS_REPORT
  while IFS='=' read -r name value; do
    if [[ $name == verdict ]]; then verdict=$value; else counts[$name]=$value; fi
  done <<<"$lines"
  if ((counts[total] == counts[skipped])); then
    if [[ $CGINS_EXIT_CODE == 0 && $INPUT_ALLOW_EMPTY != true ]]; then
      status=empty CGINS_EXIT_CODE=5 untold=true
    elif [[ $CGINS_EXIT_CODE == 5 && $INPUT_ALLOW_EMPTY == true ]] && ((counts[total] > 0)); then
      status=passed CGINS_EXIT_CODE=0
    fi
  fi
elif [[ $CGINS_EXIT_CODE == 0 ]]; then
  status=error CGINS_EXIT_CODE=4
fi

# The same for people, beside it. What fails here is no verdict on kernels.
files=$report_path
if [[ -n $report_path ]]; then
  for format in html:html junit:xml; do
    shown=${report_path%.json}.${format#*:}
    if [[ $shown != "$report_path" ]] && cgins report "$report_path" --format="${format%:*}" --out="$shown"; then
      files+=$'\n'$shown
    fi
  done
fi

{
  printf '%s=%s\n' status "$status" verdict "$verdict" exit-code "$CGINS_EXIT_CODE"
  for name in "${names[@]}"; do
    printf '%s=%d\n' "$name" "${counts[$name]:-0}"
  done
  delimiter=$(random)
  printf 'report-path<<%s\n%s\n%s\n' "$delimiter" "$report_path" "$delimiter"
  printf 'files<<%s\n%s\n%s\n' "$delimiter" "$files" "$delimiter"
} >>"$GITHUB_OUTPUT"

if [[ $INPUT_SUMMARY == true && -z $report_path ]]; then
  printf '## cgins: no report\n\nThe gate ended with exit code %d and left no readable report: its log says why.\n' \
    "$CGINS_EXIT_CODE" >>"$GITHUB_STEP_SUMMARY"
elif [[ $INPUT_SUMMARY == true ]]; then
  if [[ $untold == true ]]; then # the gate itself says it only where $CI is set
    printf '**Nothing was gated**: every case was skipped. The input allow-empty lets such a run pass.\n\n' \
      >>"$GITHUB_STEP_SUMMARY"
  fi
  summary --max-bytes=1000000 >>"$GITHUB_STEP_SUMMARY"
fi
