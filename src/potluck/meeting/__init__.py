"""The meeting point: where machines find each other, and runs start on all of them."""
