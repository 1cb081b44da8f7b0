"""Features in any form: columns and rows of them."""
