/* Nothing to declare: NVRTC declares itself what device code has of it. */
