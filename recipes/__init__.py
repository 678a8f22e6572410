"""Hydra recipes: `recipe/*.yaml`, chosen with `+recipe=<name>` on verl's command line."""
