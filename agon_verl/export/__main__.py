"""`python -m agon_verl.export`; the code is in `agon_verl.pair.export`."""

from agon_verl.pair.export import main

if __name__ == "__main__":
    raise SystemExit(main())
