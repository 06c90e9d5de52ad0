"""Looking at what is between machines: real ports, real bytes, a real all-reduce."""
