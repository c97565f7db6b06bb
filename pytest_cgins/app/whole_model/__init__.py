"""A whole model, with the kernels of cgins.yaml in the place of its ops: is it right, and is it faster?"""
