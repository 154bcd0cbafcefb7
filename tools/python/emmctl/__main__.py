"""`python -m emmctl` and the command `emmctl` of the wheel: the program, with the same arguments."""
import os
import sys

from emmctl._library import program


def main():
    path = program()
    os.execv(path, ["emmctl"] + sys.argv[1:])


if __name__ == "__main__":
    main()
