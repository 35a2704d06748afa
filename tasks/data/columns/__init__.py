"""Arrow columns, wherever they come from: types, schemas, dictionaries, hashes of rows."""
