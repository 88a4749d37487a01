"""Load tests. Locust loads a scenario's file under its bare name, which may be one of the standard library."""

import sys

if "locust" in sys.modules:
    from loadtests.harness.standard_names import restore_standard_names

    restore_standard_names()
