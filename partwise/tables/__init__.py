"""Arrow tables, wherever they come from: names, schemas, dictionaries, hashes, filters, keys."""
