"""What a session found, for people and for programs: terminal, Markdown, HTML, comment, JUnit, JSON; merges and history. It imports `gate` and what is above."""
