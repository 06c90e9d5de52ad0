"""What commands and joined machines say to a host."""
