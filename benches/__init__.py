"""The benchmark of the extension: `make bench` runs `python -m benches` beside a throwaway server. See README.md."""
