"""Scripts that the doctor runs in processes of their own: each prints one line of JSON."""
