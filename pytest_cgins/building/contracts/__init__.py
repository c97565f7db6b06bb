"""What a kernel's author writes: schema lines, launch lines, entry points, flags."""
