// Gives every layer at least one object, so that one made of entries alone is still an archive.
