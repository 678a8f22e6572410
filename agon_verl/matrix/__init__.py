"""Several methods and seeds in one command: train what is missing, evaluate all, and put it into one table."""
