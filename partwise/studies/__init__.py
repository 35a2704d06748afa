"""A study of one model on all rows: its trials run side by side on the cluster."""
