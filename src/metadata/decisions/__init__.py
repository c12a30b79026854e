"""Decisions of the controller by subject: from an image and a command to records and a reply."""
