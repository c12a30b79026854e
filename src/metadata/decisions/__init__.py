"""What the controller decides, a module a subject: image and command in, records and reply out."""
