"""Is the kernel's answer right?"""
