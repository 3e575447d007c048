"""All input and output: files, git, archives, engines. The rim touches the world, decides nothing."""
