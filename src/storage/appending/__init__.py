"""The steps of an append: validation, conversion, reservation and the write."""
