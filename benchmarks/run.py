"""Run cases and append their rows: `python -m benchmarks.run [CASE …] [--quick] [--list]`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from benchmarks.cases import CASES
from benchmarks.rows import append, stamp


def main() -> None:
    """Run the named cases, or all; an op whose tests fail is not timed."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], metavar="CASE")
    parser.add_argument("--list", action="store_true", help="list the cases")
    parser.add_argument("--quick", action="store_true", help="small sizes; rows are marked and never shown in tables")
    parser.add_argument("--no-gate", action="store_true", help="skip the tests that come first")
    arguments = parser.parse_args()
    if arguments.list:
        for name, case in CASES.items():
            print(f"{name:14} {case.about}")
        return
    if not arguments.no_gate:
        subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "tests/ops", "tests/losses"], check=True)
    # The commit whose code is loaded, whatever is committed while it runs.
    origin = stamp(quick=arguments.quick)
    for name in arguments.cases or CASES:
        rows = CASES[name].measure(arguments.quick)
        path = append(name, rows, origin)
        for row in rows:
            print(name, row["provider"], json.dumps(row["parameters"]), json.dumps(row["values"]), flush=True)
        print(f"{len(rows)} rows → {path.name}")


if __name__ == "__main__":
    main()
