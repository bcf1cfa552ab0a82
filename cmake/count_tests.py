# SPDX-License-Identifier: Apache-2.0
"""Counts what a run of ctest did: prints "PASSED FAILED SKIPPED", and names on standard error what did not pass.

count_tests.py CTEST_REPORT FOLDER

CTEST_REPORT is what ctest --output-junit wrote. A test whose program left a report FOLDER/<test>.xml, GoogleTest's or pytest's, counts
as the cases in it.
"""
import sys
import xml.etree.ElementTree as tree
from pathlib import Path


def reason(text):
    """The line of a test's output that says why it was skipped, as far as one can tell."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "skipped" in line.lower()), lines[-1] if lines else "")


def cases_of(report):
    """(name, outcome, reason) for each case of a report; nothing if the program did not live to write it."""
    try:
        suites = tree.parse(report).getroot()
    except (OSError, tree.ParseError):
        return []
    found = []
    for case in suites.iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}".strip(".")
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            found.append((name, "failed", ""))
        elif skipped is not None:
            found.append((name, "skipped", reason(skipped.text or skipped.get("message"))))
        elif case.get("status", "run") == "run":  # pytest gives none
            found.append((name, "passed", ""))
    return found


def main(ctest_report, folder):
    try:
        tests = tree.parse(ctest_report).getroot().iter("testcase")
    except (OSError, tree.ParseError) as error:
        print(f"no report of the tests: {error}", file=sys.stderr)
        return {"failed": 1}
    count = {}
    for test in tests:
        name, status = test.get("name"), test.get("status")
        outcome = {"run": "passed", "fail": "failed", "notrun": "skipped"}.get(status, status)
        cases = cases_of(Path(folder) / f"{name}.xml")
        if not cases:
            cases = [(name, outcome, reason(test.findtext("system-out")))]
        elif outcome == "failed" and all(case[1] != "failed" for case in cases):
            cases.append((name, "failed", ""))  # its cases passed, and then something went wrong
        for case, result, why in cases:
            count[result] = count.get(result, 0) + 1
            if result != "passed":
                print(f"{result}: {case}  {why}".rstrip(), file=sys.stderr)
    return count


if __name__ == "__main__":
    total = main(*sys.argv[1:])
    print(*(total.get(outcome, 0) for outcome in ("passed", "failed", "skipped")))
