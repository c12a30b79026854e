"""Names, small files and open files of a data directory: what every other room stands on."""
