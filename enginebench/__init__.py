"""Load tests for served language models: measure, compare and plan."""
