import os
import sys

if not sys.flags.safe_path and sys.path and sys.path[0] == os.getcwd():  # noqa: PTH109  as sys.path has it
    del sys.path[0]  # `python -m` puts the current folder first: a `yaml.py` among somebody's photographs would run

from nearfar.cli import main

sys.exit(main())
