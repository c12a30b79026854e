"""The pages of the docs that are rendered from the tables of the code; `make docs` writes them."""
