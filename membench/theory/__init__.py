"""What is proven about memorisation, executable."""
