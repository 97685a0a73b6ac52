"""What uses space in an image: its directories and its packages."""
