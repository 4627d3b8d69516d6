"""What a clustering says: its clusters in facts and tables, how many there are, and the page that shows it."""
