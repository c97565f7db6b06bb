"""A proposal as a pull request: the only room that sees a token with write access; it never runs a kernel.

It imports `regenerate` and what is above. All of it raises `GitHubError` where git or GitHub refuses or
cannot be reached.
"""
