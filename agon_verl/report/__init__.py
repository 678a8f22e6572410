"""`python -m agon_verl.report`: runs as one page to read, and as Markdown with pictures (docs/report.md)."""
