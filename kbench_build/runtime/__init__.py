"""What ships inside every task: standard-library Python and bash. Imports nothing of ours."""
