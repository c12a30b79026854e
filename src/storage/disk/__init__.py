"""File names, small files and open files of a data directory."""
