"""Prompts: what a language model is told of a kernel, so that its first answer is right.

Each of `repair`, `generate`, `optimise` and `advise` has `messages(context)`. All they say comes from a `Context`,
and the same context gives the same text, byte for byte.
"""
