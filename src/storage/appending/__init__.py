"""What an append is checked for, what it becomes, what it reserves and writes."""
