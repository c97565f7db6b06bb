"""The subcommands of `cgins`, a module each."""
