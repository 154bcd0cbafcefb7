import unittest

def FInput(*arguments, **named):
    raise unittest.SkipTest("filecheck is not installed")
