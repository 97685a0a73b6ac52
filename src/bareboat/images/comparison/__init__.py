"""What differs between two images: packages, files and configuration."""
