"""`python -m specsim` is the `specsim` command."""

from specsim.cli import main

if __name__ == "__main__":
    main()
