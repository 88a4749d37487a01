"""Load tests. A scenario's file may hide a standard package while Locust loads it: see `standard_names`."""

from loadtests.harness.standard_names import restore_standard_packages

restore_standard_packages()
