"""Pure decisions: values in, values out. Nothing here opens a file, a socket or a process."""
