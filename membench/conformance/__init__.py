"""What membench expects of an architecture, tested one by one, with advice."""
