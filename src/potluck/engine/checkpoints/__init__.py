"""The content of a checkpoint, its file format, and the files that a run keeps."""
