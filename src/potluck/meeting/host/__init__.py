"""The host's process: who may come in, who is here, what runs, and what each machine should do now."""
