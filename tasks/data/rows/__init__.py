"""What every source is: fragments of rows, filters, descriptions."""
