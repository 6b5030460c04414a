"""`python -m headgate`: the `headgate` command without its console script."""

from headgate.cli.entry import main

if __name__ == "__main__":
    main()
