"""The differences between two images: packages, files and configuration."""
