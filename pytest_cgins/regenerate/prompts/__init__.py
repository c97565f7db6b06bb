"""Prompts: what a language model is told of a kernel, so that its first answer is right.

`templates/` has the texts. `generator.md`, `candidate.md` (of a search), `helper.md`, `verifier.md` and `judge.md` are whole
prompts, each with its `*_system.md` (`system.md` for the first two); they include the sections, a file each. Where
languages or contracts differ, there is a file each in `languages/` and `contract/`; what makes kernels fast are the methods.
`ops.txt` and `probes.txt` are lists. What is quoted goes through `data` or `fenced`, whose fences
nothing inside can end.

`assembly` fills the templates in from a `Context`. The modules beside it gather what they say: `traces`,
`contract`, `definitions`, `findings`, `methods`, `turns`. The same context gives the same text, byte for byte.
"""
