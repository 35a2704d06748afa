"""What packages a function or a script has: asked for, resolved on the driver, built on workers."""
