"""rounding_test.py and qlora_test.py in one process, which imports PyTorch once. --full: more of both."""

import sys

import qlora_test
import rounding_test

if __name__ == "__main__":
    sys.exit(rounding_test.main() | qlora_test.main())
