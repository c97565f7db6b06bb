"""What every room may use: the frozen data that flows, documents and schemas, errors, text, files, buffers. It imports no other room."""
