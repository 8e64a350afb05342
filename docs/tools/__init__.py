"""What makes pages that nobody types by hand."""
