"""Generated pages of the documentation; `make docs` writes them."""
