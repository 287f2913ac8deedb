"""A package, so that tests share helpers and may repeat file names in different folders."""
