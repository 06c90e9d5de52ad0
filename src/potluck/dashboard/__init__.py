"""Pages in a browser that show runs while they train and after: they read run folders and change nothing."""
