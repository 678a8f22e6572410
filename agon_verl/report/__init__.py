"""`python -m agon_verl.report`: one or more runs, or a matrix of runs, as one HTML page (docs/report.md)."""
