"""One port a machine: everything between machines travels encrypted through it, and only members get through."""
