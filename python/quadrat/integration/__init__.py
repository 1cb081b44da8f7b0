"""Into code that names the reference's classes: patching, adopting, callbacks of Trainer."""
