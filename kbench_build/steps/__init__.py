"""One verb a file. Steps never import steps: they meet through files."""
