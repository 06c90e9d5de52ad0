"""What a checkpoint holds, its file, and the files that a run keeps."""
