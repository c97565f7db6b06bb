"""What every room may use: files, and in time the dataclasses that flow, errors and numbers as text. It imports no other room."""
