"""The fence around workers that run untrusted native code. Imports nothing: the launcher starts with this package."""
