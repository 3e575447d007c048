"""All input and output: files, git, archives, engines. It touches the world, decides nothing."""
